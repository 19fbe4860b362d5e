"""All metrics of all queries, from one pass over the gallery."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.retrieval.metrics import Metric, Values
from crossfade.retrieval.neighbours import Nearest
from crossfade.retrieval.ranking import Progress, relevant_ranks
from crossfade.retrieval.relevance import Relevance


@dataclass(frozen=True, eq=False)
class Measured:
    """One value per query and metric, between 0 and 1; NaN for a query with nothing relevant."""

    values: dict[str, Values]

    @property
    def queries(self) -> int:
        """Queries that have a value."""
        return int(np.isfinite(next(iter(self.values.values()))).sum())

    @property
    def skipped(self) -> int:
        """Queries with nothing relevant, left out of every mean."""
        return len(next(iter(self.values.values()))) - self.queries

    def mean(self, metric: str) -> float:
        """In percent; NaN where no query has a value."""
        values = self.values[metric]
        values = values[np.isfinite(values)]
        return float(values.mean() * 100.0) if len(values) else float("nan")

    def means(self) -> dict[str, float]:
        return {name: self.mean(name) for name in self.values}

    def by_class(self, labels: NDArray[Any]) -> dict[Any, dict[str, float]]:
        """Means over the queries of each class; classes without a value are left out.

        >>> Measured({"cmc@1": np.array([1.0, 0.0, np.nan])}).by_class(np.array([0, 0, 1]))
        {0: {'cmc@1': 50.0}}
        """
        out = {}
        for label in np.unique(labels):
            part = Measured({name: v[labels == label] for name, v in self.values.items()})
            if part.queries:
                out[label.item()] = part.means()
        return out


def measure(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    relevance: Relevance,
    metrics: Sequence[str],
    *,
    distance: Distance = "cosine",
    device: str = "cpu",
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Every metric of every query.

    >>> from crossfade.retrieval.relevance import SameClass
    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> measure(x, x, SameClass.among(np.array([0, 0, 1, 1])), ["cmc@1", "mAP"]).means()
    {'cmc@1': 100.0, 'mAP': 100.0}
    """
    named = [Metric.named(name) for name in metrics]
    if not named:
        raise BadInput("no metric was named")
    if any(metric.kind == "agreement" for metric in named) and not isinstance(relevance, Nearest):
        raise BadInput(
            "agreement is with a model's own neighbours", step="pass the relevance of `neighbours`"
        )
    items = relevance.gallery - (relevance.own is not None)
    for metric in named:
        if metric.k > items:
            warnings.warn(
                f"{metric.name} looks at {metric.k} items, and the gallery has {items}: "
                "every item is among the first",
                stacklevel=2,
            )
    values = {metric.name: np.full(relevance.queries, np.nan) for metric in named}
    for ranked in relevant_ranks(
        queries,
        gallery,
        relevance,
        distance=distance,
        device=device,
        chunk=chunk,
        progress=progress,
    ):
        place = slice(ranked.first, ranked.first + len(ranked.counts))
        for metric in named:
            values[metric.name][place] = metric(ranked)
    return Measured(values)
