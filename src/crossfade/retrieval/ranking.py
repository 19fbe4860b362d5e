"""Exact ranks of the relevant items, without ordering the gallery or storing its scores.

Only the places of relevant items matter to any metric. Queries go through in chunks: one matrix
product gives a chunk's scores; each row is sorted as plain numbers (no argsort), and the scores of
the relevant items are looked up in it. Memory is bounded by a chunk, never by queries × gallery.

Tie rule: a relevant item stands behind every irrelevant item of equal score, and among relevant
items of equal score the higher grade stands behind. It is the pessimistic order, and the only
simple one that does not depend on how the gallery happens to be stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import ZEROS, bad_rows
from crossfade.errors import BadInput, BadRow
from crossfade.retrieval.relevance import NONE, Block, Index, Relevance

Distance = Literal["cosine", "dot", "euclidean"]
DISTANCES: tuple[Distance, ...] = ("cosine", "dot", "euclidean")
Float = NDArray[np.float32]
Progress = Callable[[int, int], None]
# Scores of one chunk and their sorted copy take twice this; more does not make the product faster.
_CHUNK_BYTES = 96 << 20
_CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Ranked:
    """Queries `first` to `first + len(counts)`: how many items are relevant to each, and where.

    `ranks` (1 = first) ascend within each query; `grades` go with them.
    """

    first: int
    counts: Index
    ranks: Index
    grades: NDArray[np.float64] | None

    @property
    def starts(self) -> Index:
        """Where each query's ranks begin."""
        return np.cumsum(self.counts) - self.counts


@dataclass(frozen=True, eq=False)
class Counted:
    """Of a chunk's relevant items: scores, ascending within each query; how many gallery items
    score at least as much; and, where grades matter, the order that sorted them."""

    scores: Float
    at_least: Index
    order: Index | None


class Engine(Protocol):
    """Scores a chunk of queries and counts."""

    def chunk_rows(self) -> int: ...
    def count(self, first: int, last: int, block: Block) -> Counted: ...


def unit_rows(x: NDArray[np.floating]) -> Float:
    """Rows scaled to length one; a zero row stays zero.

    >>> unit_rows(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]], dtype=float32)
    """
    x = np.ascontiguousarray(x, dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", x, x))
    return np.asarray(x / np.where(norms > 0, norms, 1.0)[:, None], dtype=np.float32)


def comparable(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], distance: Distance
) -> tuple[Float, Float]:
    """Vectors whose inner products rank the gallery as `distance` does.

    For Euclidean distance −‖q − g‖² and 2 q·g − ‖g‖² differ by what does not depend on g: the last
    coordinate carries −‖g‖².

    >>> q, g = comparable(np.array([[1.0]]), np.array([[3.0], [0.0]]), "euclidean")
    >>> (q @ g.T).tolist()
    [[-3.0, 0.0]]
    """
    if distance == "cosine":
        return unit_rows(queries), unit_rows(gallery)
    q = np.ascontiguousarray(queries, dtype=np.float32)
    g = np.ascontiguousarray(gallery, dtype=np.float32)
    if distance == "euclidean":
        squares = np.einsum("ij,ij->i", g, g, dtype=np.float64)
        q = np.concatenate([2 * q, np.ones((len(q), 1), np.float32)], axis=1)
        g = np.concatenate([g, -squares[:, None].astype(np.float32)], axis=1)
    return q, g


def relevant_ranks(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    relevance: Relevance,
    *,
    distance: Distance = "cosine",
    device: str = "cpu",
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Ranked]:
    """The ranks of all relevant items, a chunk of queries at a time.

    A query's own item, where `relevance` names one, is left out of its gallery. A query with
    nothing relevant has no ranks. `progress` is called with queries done and queries in all.

    >>> from crossfade.retrieval.relevance import SameClass
    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> next(relevant_ranks(x, x, SameClass.among(np.array([0, 1, 0])))).ranks
    array([2, 2])
    """
    check(queries, gallery, relevance, distance)
    q, g = comparable(queries, gallery, distance)
    engine = _engine(q, g, relevance, device)
    step = engine.chunk_rows() if chunk is None else chunk
    for first in range(0, len(q), step):
        last = min(first + step, len(q))
        block = relevance.block(first, last)
        counted = engine.count(first, last, block)
        yield _ranked(first, block, counted)
        if progress is not None:
            progress(last, len(q))


def check(
    queries: NDArray[Any], gallery: NDArray[Any], relevance: Relevance, distance: Distance
) -> None:
    """Raise unless the vectors can be compared, and are those `relevance` speaks of."""
    if distance not in DISTANCES:
        raise BadInput(f"there is no distance {distance!r}", step=f"use {', '.join(DISTANCES)}")
    for name, x, rows in (
        ("query", queries, relevance.queries),
        ("gallery", gallery, relevance.gallery),
    ):
        if x.ndim != 2 or x.dtype.kind != "f":
            raise BadInput(f"the {name} vectors are {x.ndim}-dimensional {x.dtype}")
        if len(x) == 0:
            raise BadInput(f"there are no {name} vectors", step="give at least one")
        if len(x) != rows:
            raise BadInput(f"there are {len(x)} {name} vectors and relevance for {rows}")
        for row, problem in bad_rows(x).items():
            # Nothing is near a zero vector, but a vector cut to fewer dimensions may be one.
            if problem != ZEROS:
                raise BadRow(row, problem, where=f"{name} vectors", step="drop it or re-embed it")
    if queries.shape[1] != gallery.shape[1]:
        raise BadInput(
            f"queries have dimension {queries.shape[1]} and the gallery {gallery.shape[1]}",
            step="compare vectors of one space",
        )


class NumpyEngine:
    """Products by BLAS, which brings its own threads; sorting in as many of ours."""

    def __init__(self, queries: Float, gallery: Float, own: Index | None) -> None:
        self.queries, self.gallery, self.own = queries, gallery, own
        self.threads = cores()
        self._scores = np.empty((0, 0), np.float32)

    def chunk_rows(self) -> int:
        rows = _CHUNK_BYTES // (4 * len(self.gallery))
        return max(1, min(rows, _CHUNK_ROWS, len(self.queries)))

    def count(self, first: int, last: int, block: Block) -> Counted:
        rows = last - first
        # One buffer for all chunks: fresh memory costs more to touch than to fill.
        if len(self._scores) < rows:
            self._scores = np.empty((rows, len(self.gallery)), np.float32)
        scores = self._scores[:rows]
        # Overflow is found below, in the sorted scores.
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(self.queries[first:last], self.gallery.T, out=scores)
        query = np.repeat(np.arange(rows), block.counts)
        mine = scores[query, block.items]
        own = np.full(rows, NONE) if self.own is None else self.own[first:last]
        left_out = own != NONE
        # Below every score, so that the query's own item counts for nobody.
        scores[left_out, own[left_out]] = -np.inf
        order = None
        if block.grades is not None:
            order = np.lexsort((-block.grades, mine, query))
            mine = mine[order]
        below = np.empty(len(mine), np.int64)
        starts = block.starts.tolist()
        ends = (block.starts + block.counts).tolist()

        def part(begin: int, end: int) -> None:
            scores[begin:end].sort(axis=1)
            for row in range(begin, end):
                relevant = mine[starts[row] : ends[row]]
                if order is None:
                    relevant.sort()
                below[starts[row] : ends[row]] = scores[row].searchsorted(relevant)

        bounds = np.linspace(0, rows, self.threads + 1).astype(int).tolist()
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(part, bounds[:-1], bounds[1:]))
        _refuse_unfinite(scores, first, left_out)
        return Counted(mine, scores.shape[1] - below, order)


def cores() -> int:
    """Processors this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else len(os.sched_getaffinity(0))


def _engine(q: Float, g: Float, relevance: Relevance, device: str) -> Engine:
    if device == "cpu":
        return NumpyEngine(q, g, relevance.own)
    from crossfade.retrieval.torch_engine import TorchEngine

    return TorchEngine(q, g, relevance.own, device)


def _refuse_unfinite(ordered: Float, first: int, left_out: NDArray[np.bool_]) -> None:
    """Sorted rows end in NaN or +∞ and begin with −∞, where there are any; own items apart."""
    lowest = left_out.astype(np.int64)
    some_left = lowest < ordered.shape[1]
    rows = np.arange(len(ordered))
    ends = ordered[rows, np.where(some_left, lowest, 0)], ordered[:, -1]
    bad = some_left & ~(np.isfinite(ends[0]) & np.isfinite(ends[1]))
    if bad.any():
        refuse_overflow(first + int(np.flatnonzero(bad)[0]))


def refuse_overflow(query: int) -> None:
    """Raise for a query whose scores leave float32."""
    raise BadRow(
        query,
        "has a score that is not a finite number",
        where="query vectors",
        step="scale the vectors down, or compare by cosine",
    )


def _ranked(first: int, block: Block, counted: Counted) -> Ranked:
    """Ranks from counts: irrelevant items that score at least as much stand ahead."""
    counts, scores = block.counts, counted.scores
    size = np.repeat(counts, counts)
    starts = np.repeat(block.starts, counts)
    place = np.arange(len(scores))
    # The first of each run of equal scores within a query.
    fresh = np.ones(len(scores), bool)
    fresh[1:] = (scores[1:] != scores[:-1]) | (starts[1:] != starts[:-1])
    run = np.maximum.accumulate(np.where(fresh, place, 0)) if len(scores) else place
    relevant_at_least = size - (run - starts)
    among_relevant = size - (place - starts)
    ranks = among_relevant + counted.at_least - relevant_at_least
    # Scores ascend, ranks shall: turn each query's stretch around.
    turned = starts + (size - 1) - (place - starts)
    grades = None
    if block.grades is not None and counted.order is not None:
        grades = block.grades[counted.order][turned]
    return Ranked(first, counts, ranks[turned], grades)
