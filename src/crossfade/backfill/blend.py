"""What a backfilled item stores: normalize(a·B(new) + (1 − a)·F(old)); a = 1 is the paper's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput


def blend(
    mapped: NDArray[np.float32], lifted: NDArray[np.float32], a: float
) -> NDArray[np.float32]:
    """Unit vectors between B(new) and F(old); where a = 1, B(new) as it is.

    >>> blend(np.array([[1.0, 0.0]], "f4"), np.array([[0.0, 1.0]], "f4"), 0.5).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377]]
    """
    if not 0 <= a <= 1:
        raise BadInput(f"a blend of {a}", step="use a number from 0 to 1")
    if a == 1:
        return mapped
    mixed = a * mapped + np.float32(1 - a) * lifted
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    return np.asarray(mixed / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
