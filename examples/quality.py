"""How good the store's answers are, measured by asking it; related documents to the last row."""

from __future__ import annotations

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
# A hundred rows of a sample are some more of the store.
LOOKED_THROUGH = 600
RESAMPLES = 2000
SAMPLES = 10
Ask = Callable[[Queries, int, int], list[Hit]]
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quality:
    """Percent for each query, by metric; and means over samples of the store's rows."""

    values: dict[str, Float]
    sampled: dict[str, float]

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


class Rows:
    """The store's rows, and some samples of them.

    How often the first result is right depends on how many rows there are to be right. Who ranks
    all rows has ranked any sample of them, too: in samples of as many rows as the plan was made on,
    its prediction can be held against what came.
    """

    def __init__(self, labels: dict[str, str], size: int) -> None:
        rng = np.random.default_rng(0)
        size = min(size, len(labels))
        every = np.zeros((len(labels), SAMPLES + 1), bool)
        every[:, 0] = True
        for sample in range(1, SAMPLES + 1):
            every[rng.choice(len(labels), size, replace=False), sample] = True
        self.labels = labels
        self._in = dict(zip(labels, every, strict=True))

    def held(self, hits: list[Hit]) -> NDArray[np.bool_]:
        """Which of these rows are in the store (column 0) and in each sample."""
        return np.array([self._in[str(hit.id)] for hit in hits])


def measure(ask: Ask, related: Queries, lookups: Queries, rows: Rows) -> Quality:
    """Related documents: those of the query's label are relevant, and cmc@1 and mAP count.
    Lookups: the query is the summary of one document, and 1/rank of that one counts.
    """
    depth = len(rows.labels)
    found: dict[str, list[list[float]]] = {metric: [] for metric in METRICS}
    for i, label in enumerate(related.labels):
        hits = ask(related, i, depth)
        right, held = np.array([hit.values["label"] == label for hit in hits]), rows.held(hits)
        rankings = [right[column] for column in held.T]
        found["cmc@1"].append([float(one[0]) for one in rankings])
        found["mAP"].append([average_precision(one) for one in rankings])
    for i, own in enumerate(lookups.ids):
        hits = ask(lookups, i, min(depth, LOOKED_THROUGH))
        ids = [hit.id for hit in hits]
        place = ids.index(own) if own in ids else len(ids)
        ranks = 1 + rows.held(hits[:place]).sum(axis=0) if place else np.ones(SAMPLES + 1)
        ranks = np.where(own in ids, ranks, np.inf)
        found["MRR"].append(np.where(ranks <= LOOKUP_DEPTH, 1 / ranks, 0.0).tolist())
    all_of = {metric: 100 * np.array(values) for metric, values in found.items()}
    return Quality(
        {metric: values[:, 0] for metric, values in all_of.items()},
        # A sample without a relevant row says nothing.
        {metric: float(np.nanmean(values[:, 1:])) for metric, values in all_of.items()},
    )


def average_precision(right: NDArray[np.bool_]) -> float:
    """Mean precision at the places of the relevant rows.

    >>> average_precision(np.array([False, True, False, True]))
    0.5
    """
    places = np.flatnonzero(right) + 1
    if not len(places):
        return float("nan")
    return float((np.arange(1, len(places) + 1) / places).mean())
