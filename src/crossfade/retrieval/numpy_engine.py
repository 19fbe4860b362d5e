"""The counting of `ranking` on the CPU: a product for some queries, then counts in its rows."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.retrieval.counting import Count, count_below
from crossfade.retrieval.ranking import Counted, Float, comparable, refuse_overflow
from crossfade.retrieval.relevance import NONE, Block, Index
from crossfade.threads import cores, in_parts

# Scores of one chunk. With few rows a product spends its time on reading the gallery.
_CHUNK_BYTES = 256 << 20
# Scores in all from which on it pays to wait for numba.
_COMPILED_FROM = 1 << 26


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
        self.count_below = counter(len(queries) * len(gallery))
        self._scores = np.empty((0, 0), np.float32)
        # Cosines are no larger than one; other scores may leave float32.
        self._finite = distance == "cosine" or _bounded(self.queries, self.gallery)

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
        bounds = np.append(block.starts, len(mine))

        def part(begin: int, end: int) -> None:
            some = scores[begin:end]
            # Overflow is found in the scores.
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(self.queries[first + begin : first + end], self.gallery.T, out=some)
            here = slice(bounds[begin], bounds[end])
            query = np.repeat(np.arange(end - begin), block.counts[begin:end])
            found = some[query, block.items[here]]
            left_out = np.flatnonzero(own[begin:end] != NONE)
            # Below every score, so that the query's own item counts for nobody.
            some[left_out, own[begin:end][left_out]] = -np.inf
            if not self._finite:
                _refuse_unfinite(some, first + begin, own[begin:end] != NONE)
            if order is not None and block.grades is not None:
                by_grade = np.lexsort((-block.grades[here], found, query))
                mine[here] = found[by_grade]
                order[here] = by_grade + here.start
            else:
                mine[here] = _ascending(found, query)
            self.count_below(some, mine[here], bounds[begin : end + 1] - here.start, below[here])

        in_parts(rows, part)
        return Counted(mine, scores.shape[1] - below, order)


def counter(scores: int) -> Count:
    """What counts in that many scores: numba where it is installed and worth its loading."""
    if scores < _COMPILED_FROM or find_spec("numba") is None:
        return count_below
    from crossfade.retrieval import compiled_counting

    compiled: Count = compiled_counting.count_below
    return compiled


def _ascending(scores: Float, query: Index) -> Float:
    """The scores of each query from the lowest on; those of a query stand together.

    >>> _ascending(np.array([3, 1, -2, -5], np.float32), np.array([0, 0, 1, 1])).tolist()
    [1.0, 3.0, -5.0, -2.0]
    """
    # As whole numbers in the order of the scores (zero has one sign), behind their query's.
    bits = (scores + np.float32(0)).view(np.int32)
    keys = (query << 32) + (bits ^ ((bits >> 31) & 0x7FFFFFFF))
    keys.sort()
    bits = (keys & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32)


def _bounded(queries: Float, gallery: Float) -> bool:
    """Whether no sum of products can leave float32: none is larger than the lengths multiplied."""
    longest = [np.sqrt(np.vecdot(x, x, dtype=np.float64).max()) for x in (queries, gallery)]
    return bool(longest[0] * longest[1] < float(np.finfo(np.float32).max) / 2)


def _refuse_unfinite(scores: Float, first: int, left_out: NDArray[np.bool_]) -> None:
    """Every score but that of a query's own item has to be a number."""
    bad = np.isfinite(scores).sum(axis=1) + left_out < scores.shape[1]
    if bad.any():
        refuse_overflow(first + int(np.flatnonzero(bad)[0]))
