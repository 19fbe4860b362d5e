"""The identity, for the side a method does not map."""

from __future__ import annotations

import numpy as np

from crossfade.maps import Affine, Orthogonal


def same(n: int) -> Orthogonal:
    """B of the methods whose shared space is the new model's."""
    return Orthogonal(np.eye(n, dtype=np.float32))


def padded(d: int, n: int) -> Affine:
    """F of the methods that leave old vectors alone: cut or padded with zeros to n.

    >>> padded(2, 3)(np.array([[1.0, 2.0]], dtype=np.float32))
    array([[1., 2., 0.]], dtype=float32)
    """
    return Affine(np.eye(n, d, dtype=np.float32), np.zeros(n, dtype=np.float32))
