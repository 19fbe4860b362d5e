"""The counting of `ranking` on the CPU: rows of scores are sorted, relevant ones looked up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.retrieval.ranking import Counted, Distance, Float, comparable, refuse_overflow
from crossfade.retrieval.relevance import NONE, Block, Index
from crossfade.threads import cores, in_parts

# Scores of one chunk. With few rows a product spends its time on reading the gallery.
_CHUNK_BYTES = 256 << 20


class NumpyEngine:
    """Products and counts in numpy, each thread with rows of its own for both."""

    def __init__(
        self,
        queries: NDArray[np.floating],
        gallery: NDArray[np.floating],
        own: Index | None,
        distance: Distance = "cosine",
    ) -> None:
        self.queries, self.gallery = comparable(queries, gallery, distance)
        self.own = own
        self._scores = np.empty((0, 0), np.float32)

    def chunk_rows(self) -> int:
        rows = min(_CHUNK_BYTES // (4 * len(self.gallery)), max(1024, 256 * cores()))
        return max(1, min(rows, len(self.queries)))

    def count(self, first: int, last: int, block: Block) -> Counted:
        rows = last - first
        # One buffer for all chunks: fresh memory costs more to touch than to fill.
        if len(self._scores) < rows:
            self._scores = np.empty((rows, len(self.gallery)), np.float32)
        scores = self._scores[:rows]
        own = np.full(rows, NONE) if self.own is None else self.own[first:last]
        mine = np.empty(len(block.items), np.float32)
        below = np.empty(len(mine), np.int64)
        order = np.arange(len(mine)) if block.grades is not None else None
        starts = block.starts.tolist()
        ends = (block.starts + block.counts).tolist()

        def part(begin: int, end: int) -> None:
            some = scores[begin:end]
            # Overflow is found in the sorted scores.
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(self.queries[first + begin : first + end], self.gallery.T, out=some)
            here = slice(starts[begin], ends[end - 1])
            query = np.repeat(np.arange(end - begin), block.counts[begin:end])
            mine[here] = some[query, block.items[here]]
            left_out = np.flatnonzero(own[begin:end] != NONE)
            # Below every score, so that the query's own item counts for nobody.
            some[left_out, own[begin:end][left_out]] = -np.inf
            some.sort(axis=1)
            if order is not None and block.grades is not None:
                found = np.lexsort((-block.grades[here], mine[here], query))
                mine[here] = mine[here][found]
                order[here] = found + here.start
            for row in range(begin, end):
                relevant = mine[starts[row] : ends[row]]
                if order is None:
                    relevant.sort()
                below[starts[row] : ends[row]] = scores[row].searchsorted(relevant)

        in_parts(rows, part)
        _refuse_unfinite(scores, first, own != NONE)
        return Counted(mine, scores.shape[1] - below, order)


def _refuse_unfinite(ordered: Float, first: int, left_out: NDArray[np.bool_]) -> None:
    """Sorted rows end in NaN or +∞ and begin with −∞, where there are any; own items apart."""
    lowest = left_out.astype(np.int64)
    some_left = lowest < ordered.shape[1]
    rows = np.arange(len(ordered))
    ends = ordered[rows, np.where(some_left, lowest, 0)], ordered[:, -1]
    bad = some_left & ~(np.isfinite(ends[0]) & np.isfinite(ends[1]))
    if bad.any():
        refuse_overflow(first + int(np.flatnonzero(bad)[0]))
