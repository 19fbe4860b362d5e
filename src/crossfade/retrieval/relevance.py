"""Who is relevant to whom: from labels, or, where there are none, from a model's own neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.retrieval.ranking import Relevance, unit_rows


def same_class(labels: NDArray[np.integer], *, leave_one_out: bool = True) -> Relevance:
    """For each item the indices of all items of its class, itself left out unless told otherwise.

    >>> same_class(np.array([0, 1, 0]))
    [array([2]), array([], dtype=int64), array([0])]
    """
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    out: Relevance = [np.empty(0, dtype=np.int64)] * len(labels)
    for start, count in zip(starts, counts, strict=True):
        members = order[start : start + count]
        for i in members:
            out[int(i)] = members[members != i] if leave_one_out else members
    return out


def neighbours(vectors: NDArray[np.floating], k: int = 10, chunk: int = 1024) -> Relevance:
    """For each row the indices of its k nearest other rows by cosine.

    >>> neighbours(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), k=1)
    [array([1]), array([0]), array([1])]
    """
    unit = unit_rows(vectors)
    k = min(k, len(unit) - 1)
    out: Relevance = []
    for first in range(0, len(unit), chunk):
        scores = unit[first : first + chunk] @ unit.T
        rows = np.arange(len(scores))
        scores[rows, first + rows] = -np.inf
        out.extend(np.argpartition(scores, -k, axis=1)[:, -k:])
    return out
