"""Exact ranks of the relevant items under cosine similarity, without ordering the gallery.

Only the places of relevant items matter to any metric. For each query the gallery's scores are
sorted as plain numbers (no argsort) and the relevant scores are looked up in them.

Tie rule: a relevant item stands behind every irrelevant item of equal score. It is the pessimistic
order, and the only simple one that does not depend on how the gallery happens to be stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Relevance = list[NDArray[np.int64]]


def unit_rows(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """Rows scaled to length one; a zero row stays zero.

    >>> unit_rows(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]], dtype=float32)
    """
    x = np.ascontiguousarray(x, dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", x, x))
    return np.asarray(x / np.where(norms > 0, norms, 1.0)[:, None], dtype=np.float32)


def relevant_ranks(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    relevant: Sequence[NDArray[np.int64]],
    *,
    leave_one_out: bool = True,
    chunk: int = 1024,
) -> Relevance:
    """For each query the ranks (1 = first), ascending, of its relevant gallery items.

    With `leave_one_out` query i and gallery item i are the same item, and it is left out of query
    i's gallery. A query with nothing relevant gets an empty array.

    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> relevant_ranks(x, x, [np.array([2]), np.array([], dtype=np.int64), np.array([0])])
    [array([2]), array([], dtype=int64), array([2])]
    """
    q, g = unit_rows(queries), unit_rows(gallery)
    out: Relevance = []
    for first in range(0, len(q), chunk):
        scores = q[first : first + chunk] @ g.T
        ordered = scores.copy()
        if leave_one_out:
            rows = np.arange(len(scores))
            # Below every cosine, so that the query's own item counts for nobody.
            ordered[rows, first + rows] = -np.inf
        ordered.sort(axis=1)
        for row in range(len(scores)):
            mine = np.sort(scores[row, relevant[first + row]])
            at_least = len(g) - np.searchsorted(ordered[row], mine, side="left")
            relevant_at_least = len(mine) - np.searchsorted(mine, mine, side="left")
            irrelevant_ahead = (at_least - relevant_at_least)[::-1]
            out.append((np.arange(1, len(mine) + 1) + irrelevant_ahead).astype(np.int64))
    return out
