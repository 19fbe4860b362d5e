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

METRICS = ("cmc@1", "mAP", "MRR")
# Of a search for one document: who has not found it by then has given up.
LOOKUP_DEPTH = 100
RESAMPLES = 2000
Ask = Callable[[Queries, int, int], list[Hit]]
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quality:
    """Percent for each query, by metric."""

    values: dict[str, Float]

    @property
    def means(self) -> dict[str, float]:
        return {metric: float(values.mean()) for metric, values in self.values.items()}

    def above(self, other: Quality) -> dict[str, tuple[float, float]]:
        """95 % intervals of the difference to `other`, paired over queries."""
        return {
            metric: interval(
                resampled_means((values - other.values[metric])[:, None], RESAMPLES, seed=0)
            )
            for metric, values in self.values.items()
        }


def measure(ask: Ask, related: Queries, lookups: Queries, labels: Counter[str]) -> Quality:
    """Related documents: all rows are asked for, and those of the query's label are relevant.
    Lookups: the query is the summary of one document, and 1/rank of that one counts.

    `labels` counts the store's rows of each label.
    """
    depth = sum(labels.values())
    first, precision = [], []
    for i, label in enumerate(related.labels):
        hits = ask(related, i, depth)
        right = np.array([hit.values["label"] == label for hit in hits], bool)
        first.append(float(right[0]))
        precision.append(average_precision(right, labels[label]))
    ranks = []
    for i, own in enumerate(lookups.ids):
        found = [
            place for place, hit in enumerate(ask(lookups, i, LOOKUP_DEPTH), 1) if hit.id == own
        ]
        ranks.append(1 / found[0] if found else 0.0)
    columns = (first, precision, ranks)
    return Quality({m: 100 * np.array(c) for m, c in zip(METRICS, columns, strict=True)})


def average_precision(right: NDArray[np.bool_], relevant: int) -> float:
    """Mean precision at the places of the relevant rows.

    >>> average_precision(np.array([False, True, False, True]), 2)
    0.5
    """
    places = np.flatnonzero(right) + 1
    return float((np.arange(1, len(places) + 1) / places).sum() / relevant)
