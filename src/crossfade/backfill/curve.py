"""Backfilling curves: retrieval quality against the share of the gallery backfilled (Section 4.1).

A gallery starts as `before` (usually F(old)); items turn into `after` (usually B(new)) in some
order. Both score sets are computed once per chunk of queries, and the ranks of the relevant items
followed along the order, so that a hundred points cost little more than the two ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, MissingExtra
from crossfade.retrieval.metrics import Metric, Values
from crossfade.retrieval.ranking import (
    Progress,
    Ranked,
    check,
    comparable,
    refuse_overflow,
)
from crossfade.retrieval.relevance import NONE, Block, Index, Relevance
from crossfade.threads import in_parts

Float = NDArray[np.float32]
POINTS = 101
# Both score sets of a chunk, and the ranks of its relevant items at every point.
_SCORE_BYTES, _RANK_BYTES = 128 << 20, 128 << 20


@dataclass(frozen=True, eq=False)
class Curve:
    """Metrics at each share of the gallery backfilled.

    `values[metric]` (points, queries) is between 0 and 1, NaN for a query with nothing relevant.
    """

    shares: Values
    values: dict[str, Values]

    def means(self, metric: str) -> Values:
        """The curve in percent: the mean over queries at each point (points,)."""
        return np.asarray(self.of_queries(metric).mean(axis=1) * 100.0)

    def of_queries(self, metric: str) -> Values:
        """The values of those queries that have any (points, queries)."""
        values = self.values[metric]
        return np.asarray(values[:, np.isfinite(values[0])])

    def areas(self, metric: str) -> Values:
        """Each query's own area under its curve, in percent; their mean is M̃."""
        return np.asarray(np.trapezoid(self.of_queries(metric), self.shares, axis=0) * 100.0)

    def area(self, metric: str) -> float:
        """M̃: the area under the curve (Section 4.1), by the trapezoidal rule, in percent."""
        return float(np.trapezoid(self.means(metric), self.shares))

    def half(self, metric: str) -> Values:
        """As `means`, of the first half of the queries alone."""
        values = self.of_queries(metric)
        return np.asarray(values[:, halves(values.shape[1])[0]].mean(axis=1) * 100.0)

    def line(self, today: Mapping[str, Values] | None = None) -> Line:
        """The means alone, for those who compare many curves and need the queries of one.

        With what each query finds `today`, by metric (queries,), it tells how sure the difference
        to that is; without, how sure the curve itself is.
        """
        errors = {}
        for metric in self.values:
            gain = self.of_queries(metric)
            if today is not None:
                gain = gain - today[metric][np.isfinite(today[metric])]
            errors[metric] = np.asarray(gain.std(axis=1) * 100.0 / np.sqrt(gain.shape[1]))
        return Line(
            self.shares,
            {metric: self.means(metric) for metric in self.values},
            {metric: self.half(metric) for metric in self.values},
            errors,
        )


@dataclass(frozen=True, eq=False)
class Line:
    """A curve without its queries: percent at each share, by metric."""

    shares: Values
    values: dict[str, Values]
    first_half: dict[str, Values]
    """As `values`, of the first half of the queries alone."""
    errors: dict[str, Values]
    """Standard errors of the curve, or of its difference to today, in points."""

    def means(self, metric: str) -> Values:
        """The curve in percent (points,)."""
        return self.values[metric]

    def half(self, metric: str) -> Values:
        """As `means`, of the first half of the queries alone."""
        return self.first_half[metric]

    def area(self, metric: str) -> float:
        """M̃: the area under the curve, by the trapezoidal rule, in percent."""
        return float(np.trapezoid(self.values[metric], self.shares))


def halves(queries: int) -> tuple[Index, Index]:
    """Two halves of the queries, by chance: one to choose by, and one to confirm by.

    >>> first, second = halves(5)
    >>> len(first), len(second), sorted([*first.tolist(), *second.tolist()])
    (2, 3, [0, 1, 2, 3, 4])
    """
    order = np.random.default_rng(0).permutation(queries)
    # Of one query there is no half to choose by: it is taken whole.
    middle = max(1, queries // 2)
    return order[:middle], order[middle:]


def turns(positions: Index, points: int = POINTS) -> tuple[Values, Index]:
    """Shares of a curve, and for each item the first point at which it is backfilled.

    `positions[j]` is the place of item j in the order, from 0. At share β the first ⌊β·items⌋ are
    backfilled.

    >>> turns(np.array([2, 0, 1, 3]), points=3)
    (array([0. , 0.5, 1. ]), array([2, 1, 1, 2]))
    """
    if points < 2:
        raise BadInput(f"a curve of {points} points", step="use at least 2")
    items = len(positions)
    if not np.array_equal(np.sort(positions), np.arange(items)):
        raise BadInput("the order does not name every gallery item once")
    steps = np.arange(points)
    filled = items * steps // (points - 1)
    return steps / (points - 1), np.searchsorted(filled, positions, side="right")


def check_metrics(names: Sequence[str]) -> list[Metric]:
    """The metrics of these names; raises for those that have no curve."""
    named = [Metric.named(name) for name in names]
    if not named:
        raise BadInput("a curve needs a metric")
    if any(metric.kind == "agreement" for metric in named):
        raise BadInput("agreement has no curve", step="use labels or qrels")
    return named


def curves(
    queries: NDArray[np.floating],
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    orders: Mapping[str, Index],
    relevance: Relevance,
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    *,
    points: int = POINTS,
    distance: Distance = "cosine",
    after_queries: NDArray[np.floating] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Curve]:
    """The exact curve of each order; `orders[name][j]` is the place of gallery item j in it.

    Items that are backfilled may be asked with queries of their own, `after_queries`: scores on
    `before` and on `after` have to be on one scale then. On a `device` other than the CPU, torch
    follows the ranks.

    >>> from crossfade.retrieval import SameClass
    >>> q = np.eye(2)
    >>> before, after = np.eye(2)[[1, 0]], np.eye(2)
    >>> relevance = SameClass(np.array([0, 1]), np.array([0, 1]))
    >>> found = curves(q, before, after, {"plain": np.array([0, 1])}, relevance, points=3)
    >>> found["plain"].means("cmc@1").tolist()
    [0.0, 0.0, 100.0]
    """
    later = queries if after_queries is None else after_queries
    check(queries, before, relevance, distance)
    check(later, after, relevance, distance)
    named = check_metrics(metrics)
    if not orders:
        raise BadInput("a curve needs an order")
    for positions in orders.values():
        if len(positions) != relevance.gallery:
            raise BadInput(
                f"the order has {len(positions)} items, the gallery {relevance.gallery}",
                step="order the gallery that is backfilled",
            )
    turned = {name: turns(np.asarray(p), points) for name, p in orders.items()}
    shares = np.arange(points) / (points - 1)
    values = {
        name: {m.name: np.full((points, relevance.queries), np.nan) for m in named}
        for name in orders
    }
    (q0, g0), (q1, g1) = comparable(queries, before, distance), comparable(later, after, distance)
    _refuse_overflow(q0, g0)
    _refuse_overflow(q1, g1)
    walk = _walk((q0, g0), (q1, g1), device)
    for first, last in _chunks(relevance, points):
        block = relevance.block(first, last)
        own = _own(relevance, first, last)
        scores = walk.scores(first, last)
        for name, (_, turn) in turned.items():
            ranks, grades = walk.walk(scores, turn, points, block, own)
            for t in range(points):
                graded = None if grades is None else grades[t]
                ranked = Ranked(first, block.counts, ranks[t], graded)
                for metric in named:
                    values[name][metric.name][t, first:last] = metric(ranked)
        if progress is not None:
            progress(last, relevance.queries)
    return {name: Curve(shares, found) for name, found in values.items()}


def _chunks(relevance: Relevance, points: int) -> list[tuple[int, int]]:
    """Queries few enough that scores and ranks of all points stay within bounds."""
    by_scores = max(1, _SCORE_BYTES // (8 * relevance.gallery))
    out, first = [], 0
    while first < relevance.queries:
        last = min(first + by_scores, relevance.queries)
        counts = np.cumsum(relevance.block(first, last).counts)
        fits = int(np.searchsorted(counts * points * 16, _RANK_BYTES, side="right"))
        last = min(last, first + max(1, fits))
        out.append((first, last))
        first = last
    return out


def _own(relevance: Relevance, first: int, last: int) -> Index:
    return np.full(last - first, NONE) if relevance.own is None else relevance.own[first:last]


class Walk(Protocol):
    """Scores a chunk of queries with both galleries, and follows the ranks along an order."""

    def scores(self, first: int, last: int) -> Any: ...
    def walk(
        self, scores: Any, turn: Index, points: int, block: Block, own: Index
    ) -> tuple[NDArray[np.int32], Values | None]: ...


def _walk(before: tuple[Float, Float], after: tuple[Float, Float], device: str) -> Walk:
    if device == "cpu":
        return _NumbaWalk(before, after)
    from crossfade.backfill.torch_walk import TorchWalk

    return TorchWalk(before, after, device)


def _refuse_overflow(queries: Float, gallery: Float) -> None:
    """No sum of products is larger than the lengths of the vectors multiplied."""
    lengths = [np.sqrt(np.vecdot(x, x, dtype=np.float64)) for x in (queries, gallery)]
    beyond = np.flatnonzero(lengths[0] * lengths[1].max() > np.finfo(np.float32).max)
    if len(beyond):
        refuse_overflow(int(beyond[0]))


class _NumbaWalk:
    """On the CPU: each thread has queries of its own, for the products and for the walk."""

    def __init__(self, before: tuple[Float, Float], after: tuple[Float, Float]) -> None:
        try:
            from crossfade.backfill import kernel
        except ImportError as error:
            raise MissingExtra("numba", extra="plan", need="a backfilling curve") from error
        self.before, self.after, self.walk_rows = before, after, kernel.walk_rows

    def scores(self, first: int, last: int) -> tuple[Float, Float]:
        (q0, g0), (q1, g1) = self.before, self.after
        return _scores(q0[first:last], g0), _scores(q1[first:last], g1)

    def walk(
        self,
        scores: tuple[Float, Float],
        turn: Index,
        points: int,
        block: Block,
        own: Index,
    ) -> tuple[NDArray[np.int32], Values | None]:
        """Ranks and grades (points, relevant items of the chunk)."""
        before, after = scores
        total = len(block.items)
        ranks = np.empty((points, total), np.int32)
        grades = np.empty(0) if block.grades is None else block.grades
        ranked_grades = np.empty((points, len(grades)))
        starts = np.append(block.starts, total)

        def part(begin: int, end: int) -> None:
            here = slice(starts[begin], starts[end])
            self.walk_rows(
                before[begin:end],
                after[begin:end],
                turn,
                points,
                block.counts[begin:end],
                block.items[here],
                grades[here],
                own[begin:end],
                ranks[:, here],
                ranked_grades[:, here],
            )

        in_parts(len(block.counts), part)
        return ranks, None if block.grades is None else ranked_grades


def _scores(queries: Float, gallery: Float) -> Float:
    out = np.empty((len(queries), len(gallery)), np.float32)

    def part(begin: int, end: int) -> None:
        np.matmul(queries[begin:end], gallery.T, out=out[begin:end])

    in_parts(len(queries), part)
    return out
