"""Sums of products over pairs: all that the closed form needs, gathered in one streaming pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over pairs: all that the closed form needs of them."""

    rows: int
    old: Array
    new: Array
    old_old: Array
    new_old: Array
    new_new: Array

    @classmethod
    def of(
        cls, batches: Iterable[tuple[NDArray[np.float32], NDArray[np.float32]]], d: int, n: int
    ) -> Moments:
        """Gather from batches of (old (m, d), new (m, n)).

        >>> m = Moments.of([(np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))], 1, 1)
        >>> m.rows, m.new_old
        (2, array([[2.]]))
        """
        rows = 0
        old, new = np.zeros(d), np.zeros(n)
        old_old, new_old, new_new = np.zeros((d, d)), np.zeros((n, d)), np.zeros((n, n))
        for x, z in batches:
            rows += len(x)
            old += x.sum(axis=0, dtype=np.float64)
            new += z.sum(axis=0, dtype=np.float64)
            # Products of a batch in float32, their sum over batches in float64.
            old_old += x.T @ x
            new_old += z.T @ x
            new_new += z.T @ z
        return cls(rows, old, new, old_old, new_old, new_new)

    def rotated(self, rotation: Array) -> Moments:
        """The moments with every old vector x replaced by `rotation` x."""
        return Moments(
            self.rows,
            rotation @ self.old,
            self.new,
            rotation @ self.old_old @ rotation.T,
            self.new_old @ rotation.T,
            self.new_new,
        )


def principal_axes(moments: Moments) -> Array:
    """Rotation (d, d) of old onto its principal axes, strongest first: a cut then loses least."""
    _, vectors = scipy.linalg.eigh(moments.old_old)
    return np.asarray(vectors[:, ::-1].T)
