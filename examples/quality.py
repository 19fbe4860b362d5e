"""How good the store's answers are, measured by asking it: all queries, to the last row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.stores import Hit
from examples.application import Queries

# By label: is the first result of the query's class, and where are the others. By document: the
# query is the summary of one document, and 1/rank of that one is averaged.
METRICS = ("cmc@1", "mAP", "MRR")
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Quality:
    """Percent, for each query (rows) and metric (columns)."""

    values: NDArray[np.float64]

    @property
    def means(self) -> dict[str, float]:
        return dict(zip(METRICS, self.values.mean(axis=0).tolist(), strict=True))

    def above(self, other: Quality) -> dict[str, tuple[float, float]]:
        """95 % intervals of the difference to `other`, paired over queries."""
        drawn = resampled_means(self.values - other.values, RESAMPLES, seed=0)
        return {metric: interval(drawn[:, j]) for j, metric in enumerate(METRICS)}


def measure(
    ask: Callable[[int, int], list[Hit]], queries: Queries, labels: Counter[str]
) -> Quality:
    """Ask every query for all rows; `labels` counts the store's rows of each label."""
    depth = sum(labels.values())
    values = np.zeros((len(queries), len(METRICS)))
    for i, (label, own) in enumerate(zip(queries.labels, queries.ids, strict=True)):
        hits = ask(i, depth)
        values[i] = scores(
            np.array([hit.values["label"] == label for hit in hits], bool),
            np.array([hit.id == own for hit in hits], bool),
            labels[label],
        )
    return Quality(100 * values)


def scores(
    right: NDArray[np.bool_], own: NDArray[np.bool_], relevant: int
) -> tuple[float, float, float]:
    """CMC-Top1, average precision and reciprocal rank of one ranking.

    >>> scores(np.array([False, True, False, True]), np.array([False, True, False, False]), 2)
    (0.0, 0.5, 0.5)
    """
    places = np.flatnonzero(right) + 1
    precisions = np.arange(1, len(places) + 1) / places
    rank = np.flatnonzero(own)[:1] + 1
    return (
        float(right[:1].sum()),
        float(precisions.sum() / relevant),
        float((1 / rank).sum()),
    )
