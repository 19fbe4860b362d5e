"""Confidence intervals by resampling queries: the same resamples for every case, so paired."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
_TOGETHER = 64


def resampled_means(values: Float, resamples: int, seed: int) -> Float:
    """Means of the columns of `values` (queries, columns) over queries drawn with replacement.

    >>> resampled_means(np.ones((5, 2)), resamples=3, seed=0)
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """
    rng = np.random.default_rng(seed)
    queries = len(values)
    out = np.empty((resamples, values.shape[1]))
    for first in range(0, resamples, _TOGETHER):
        counts = np.stack(
            [
                np.bincount(rng.integers(0, queries, size=queries), minlength=queries)
                for _ in range(min(_TOGETHER, resamples - first))
            ]
        )
        out[first : first + len(counts)] = counts @ values / queries
    return out


def interval(means: Float) -> tuple[float, float]:
    """The middle 95 % of resampled means.

    >>> interval(np.arange(41.0))
    (1.0, 39.0)
    """
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
