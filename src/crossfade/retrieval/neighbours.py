"""The nearest items of a model's own ranking: the truth where there are no labels and no qrels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.retrieval.ranking import comparable
from crossfade.retrieval.relevance import NONE, Index, Listed, checked_own

_CHUNK_BYTES = 64 << 20


class Nearest(Listed):
    """Relevance that says more: grades are places in a ranking, k for the first down to 1."""

    k: int


def neighbours(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    k: int = 10,
    *,
    own: Index | None = None,
    distance: Distance = "cosine",
) -> Nearest:
    """For each query its k nearest gallery items but its own, graded k for the nearest down to 1.

    Of equal scores the item of lower index is the nearer.

    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> neighbours(x, x, k=1, own=np.arange(3)).block(0, 3).items
    array([1, 0, 1])
    """
    q, g = comparable(queries, gallery, distance)
    own = checked_own(own, len(q), len(g))
    k = min(k, len(g) if own is None else len(g) - 1)
    chunk = max(1, _CHUNK_BYTES // (4 * len(g)))
    items = np.empty((len(q), k), np.int64)
    for first in range(0, len(q), chunk):
        scores = q[first : first + chunk] @ g.T
        if own is not None:
            here = own[first : first + chunk]
            there = np.flatnonzero(here != NONE)
            scores[there, here[there]] = -np.inf
        items[first : first + len(scores)] = _top(scores, k)
    query = np.repeat(np.arange(len(q)), k)
    grades = np.tile(np.arange(k, 0, -1), len(q))
    nearest = Nearest(len(q), len(g), query, items.ravel(), grades=grades, own=own)
    nearest.k = k
    return nearest


def _top(scores: NDArray[np.float32], k: int) -> Index:
    """Indices of the k highest of each row, highest first, equal ones by index.

    >>> _top(np.array([[1.0, 3.0, 2.0, 3.0]], dtype=np.float32), 2)
    array([[1, 3]])
    """
    if k == 0:
        return np.empty((len(scores), 0), np.int64)
    rows = np.arange(len(scores))[:, None]
    at_least = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    # All above the k-th score, then as many equal to it as are still wanted, by index.
    above = (scores > at_least[:, None]).sum(axis=1)
    equal = scores == at_least[:, None]
    equal &= np.cumsum(equal, axis=1) <= (k - above)[:, None]
    chosen = equal | (scores > at_least[:, None])
    picked = np.nonzero(chosen)[1].reshape(len(scores), k)
    order = np.argsort(-scores[rows, picked], axis=1, kind="stable")
    return np.asarray(picked[rows, order])
