"""Exact ranks of the relevant items, without ordering the gallery or storing its scores.

Only the places of relevant items matter to any metric. Queries go through in chunks: one matrix
product gives a chunk's scores, and in each row the scores below those of its relevant items are
counted, without a sort. Memory is bounded by a chunk, never by queries × gallery.

Tie rule: a relevant item stands behind every irrelevant item of equal score, and among relevant
items of equal score the higher grade stands behind. It is the pessimistic order, and the only
simple one that does not depend on how the gallery happens to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import ZEROS, bad_rows
from crossfade.distance import Distance, check_distance
from crossfade.errors import BadInput, BadRow
from crossfade.retrieval.relevance import Block, Index, Relevance

Float = NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Ranked:
    """Queries `first` to `first + len(counts)`: how many items are relevant to each, and where.

    `ranks` (1 = first) ascend within each query; `grades` go with them.
    """

    first: int
    counts: Index
    ranks: NDArray[np.integer]
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

    >>> q, g = comparable(np.array([[1.0]]), np.array([[3.0], [0.0]]), "l2")
    >>> (q @ g.T).tolist()
    [[-3.0, 0.0]]
    """
    if distance == "cosine":
        unit = unit_rows(gallery)
        return unit if queries is gallery else unit_rows(queries), unit
    q = np.ascontiguousarray(queries, dtype=np.float32)
    g = np.ascontiguousarray(gallery, dtype=np.float32)
    if distance == "l2":
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
    engine = _engine(queries, gallery, relevance, distance, device)
    step = engine.chunk_rows() if chunk is None else chunk
    for first in range(0, len(queries), step):
        last = min(first + step, len(queries))
        block = relevance.block(first, last)
        counted = engine.count(first, last, block)
        yield _ranked(first, block, counted)
        if progress is not None:
            progress(last, len(queries))


def check(
    queries: NDArray[Any], gallery: NDArray[Any], relevance: Relevance, distance: Distance
) -> None:
    """Raise unless the vectors can be compared, and are those `relevance` speaks of."""
    check_distance(distance)
    sides = [("query", queries, relevance.queries), ("gallery", gallery, relevance.gallery)]
    for name, x, rows in sides:
        if x.ndim != 2 or x.dtype.kind != "f":
            raise BadInput(f"the {name} vectors are {x.ndim}-dimensional {x.dtype}")
        if len(x) == 0:
            raise BadInput(f"there are no {name} vectors", step="give at least one")
        if len(x) != rows:
            raise BadInput(f"there are {len(x)} {name} vectors and relevance for {rows}")
    for name, x, _ in sides[: 1 if queries is gallery else 2]:
        for row, problem in bad_rows(x).items():
            # Nothing is near a zero vector, but a vector cut to fewer dimensions may be one.
            if problem != ZEROS:
                raise BadRow(row, problem, where=f"{name} vectors", step="drop it or re-embed it")
    if queries.shape[1] != gallery.shape[1]:
        raise BadInput(
            f"queries have dimension {queries.shape[1]} and the gallery {gallery.shape[1]}",
            step="compare vectors of one space",
        )


def _engine(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    relevance: Relevance,
    distance: Distance,
    device: str,
) -> Engine:
    if device == "cpu":
        from crossfade.retrieval.numpy_engine import NumpyEngine

        return NumpyEngine(queries, gallery, relevance.own, distance)
    from crossfade.retrieval.torch_engine import TorchEngine

    return TorchEngine(queries, gallery, relevance.own, distance, device)


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
