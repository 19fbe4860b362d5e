"""Metrics by name. Each is a function from the ranks of relevant items to one value per query.

| name | value of a query |
|---|---|
| `cmc@k` | 1 if one of the first k items is relevant (CMC-Top k, Section 4.2) |
| `mAP` | mean over its relevant items of the precision at their ranks (Section 4.2) |
| `recall@k` | share of its relevant items among the first k |
| `precision@k` | share of relevant items among the first k |
| `ndcg@k` | Σ grade / log2(rank + 1) over the first k, divided by that of the best order |
| `mrr@k` | 1 / rank of the first relevant item, 0 beyond k |
| `agreement@k` | share of the new model's own first k items that are among the first k here |

Means over queries are percentages. Queries with nothing relevant have no value and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.retrieval.ranking import Ranked

Values = NDArray[np.float64]
_NAMED = re.compile(r"(cmc|recall|precision|ndcg|mrr|agreement)@([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Metric:
    """A metric and its k; `mAP` has none.

    >>> Metric.named("ndcg@10")
    Metric(kind='ndcg', k=10)
    >>> Metric.named("mAP").name
    'mAP'
    """

    kind: str
    k: int = 0

    @classmethod
    def named(cls, name: str) -> Metric:
        if name == "mAP":
            return cls("mAP")
        found = _NAMED.fullmatch(name)
        if found is None:
            raise BadInput(
                f"there is no metric named {name!r}",
                step="use mAP, or one of cmc, recall, precision, ndcg, mrr, agreement with @k, "
                "e.g. cmc@1",
            )
        return cls(found[1], int(found[2]))

    @property
    def name(self) -> str:
        return self.kind if self.kind == "mAP" else f"{self.kind}@{self.k}"

    def __call__(self, ranked: Ranked) -> Values:
        """One value per query, NaN where nothing is relevant."""
        out = np.full(len(ranked.counts), np.nan)
        some = ranked.counts > 0
        if some.any():
            out[some] = _KINDS[self.kind](_Segments(ranked), self.k)
        return out


class _Segments:
    """The ranks of the queries that have any, and sums over each query's."""

    def __init__(self, ranked: Ranked) -> None:
        self.counts = ranked.counts[ranked.counts > 0]
        self.starts = np.cumsum(self.counts) - self.counts
        self.ranks = ranked.ranks
        self.nth = np.arange(len(self.ranks)) - np.repeat(self.starts, self.counts)
        self.grades = np.ones(len(self.ranks)) if ranked.grades is None else ranked.grades

    def sum(self, values: NDArray[np.generic]) -> Values:
        return np.add.reduceat(values.astype(np.float64), self.starts)

    @property
    def first(self) -> NDArray[np.int64]:
        return np.asarray(self.ranks[self.starts])


def _cmc(s: _Segments, k: int) -> Values:
    return (s.first <= k).astype(np.float64)


def _mean_ap(s: _Segments, _: int) -> Values:
    return s.sum((s.nth + 1) / s.ranks) / s.counts


def _recall(s: _Segments, k: int) -> Values:
    return s.sum(s.ranks <= k) / s.counts


def _precision(s: _Segments, k: int) -> Values:
    return s.sum(s.ranks <= k) / k


def _mrr(s: _Segments, k: int) -> Values:
    return np.where(s.first <= k, 1.0 / s.first, 0.0)


def _ndcg(s: _Segments, k: int) -> Values:
    gained = s.sum(np.where(s.ranks <= k, s.grades / np.log2(s.ranks + 1.0), 0.0))
    query = np.repeat(np.arange(len(s.counts)), s.counts)
    best = s.grades[np.lexsort((-s.grades, query))]
    ideal = s.sum(np.where(s.nth < k, best / np.log2(s.nth + 2.0), 0.0))
    return gained / ideal


def _agreement(s: _Segments, k: int) -> Values:
    # Grades of `neighbours` fall from the nearest on; the k nearest have the k highest.
    nearest = s.grades > np.repeat(s.counts, s.counts) - k
    return s.sum(nearest & (s.ranks <= k)) / np.minimum(s.counts, k)


_KINDS: dict[str, Callable[[_Segments, int], Values]] = {
    "cmc": _cmc,
    "mAP": _mean_ap,
    "recall": _recall,
    "precision": _precision,
    "ndcg": _ndcg,
    "mrr": _mrr,
    "agreement": _agreement,
}


def check_metric(name: str) -> str:
    """The name, if there is such a metric.

    >>> check_metric("cmc@5")
    'cmc@5'
    """
    return Metric.named(name).name
