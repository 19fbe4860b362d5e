"""Rows that no map can learn from or be applied to: a NaN, an infinity, or nothing but zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ZEROS = "is all zeros"


def bad_rows(x: NDArray[np.floating[Any]]) -> dict[int, str]:
    """What is wrong with each row of `x` (m, d) that cannot be used.

    >>> bad_rows(np.array([[1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]], dtype=np.float32))
    {1: 'is all zeros', 2: 'has a NaN'}
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", x, x)
        # One comparison finds NaN, infinity and zero alike. A sum of squares can also leave the
        # range of float32 where the numbers do not, so the few found are looked at one by one.
        suspects = np.flatnonzero(~((squares > 0) & (squares < np.inf)))
    found = {}
    for row in suspects.tolist():
        problem = _problem(x[row])
        if problem is not None:
            found[row] = problem
    return found


def _problem(vector: NDArray[np.floating[Any]]) -> str | None:
    if np.isnan(vector).any():
        return "has a NaN"
    if np.isinf(vector).any():
        return "has an infinite value"
    return None if vector.any() else ZEROS
