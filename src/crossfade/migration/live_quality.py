"""Retrieval quality as an application gets it: queries sent through the store's own search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.errors import BadInput
from crossfade.files.whole import read_column
from crossfade.pairs import Pairs
from crossfade.search.searcher import Searcher
from crossfade.stores import Hit, Store

# Deeper than any page of results; where the store has fewer rows, mAP is exact.
DEPTH = 1000
QUERIES = 500
METRICS = ("cmc@1", "mAP")
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries embedded by both models, each relevant to the rows that hold its label."""

    old: NDArray[np.float32]
    new: NDArray[np.float32]
    labels: Sequence[Any]
    column: str

    @classmethod
    def open(cls, path: Path, column: str, *, labels: str | None = None) -> Queries:
        """From a file of pairs, whose labels are what the store's `column` holds; `labels` names
        them where they are not in that file: FILE or FILE:NAME."""
        pairs = Pairs.open(path, use_labels=False).load()
        return cls(
            old=np.asarray(pairs.old, np.float32),
            new=np.asarray(pairs.new, np.float32),
            labels=read_column(labels or f"{path}:labels").tolist(),
            column=column,
        )


@dataclass(frozen=True)
class Measured:
    """Means in percent by metric, for new queries and for old ones, and how sure their
    difference is (95 % interval, paired over queries)."""

    queries: int
    depth: int
    new: dict[str, float]
    old: dict[str, float]
    difference: dict[str, tuple[float, float]]

    @property
    def worse(self) -> list[str]:
        """Metrics in which new queries are below old ones beyond chance."""
        return [metric for metric, (_, high) in self.difference.items() if high < 0]


def measure_live(
    store: Store,
    searcher: Searcher,
    queries: Queries,
    *,
    old_too: bool,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """CMC-Top1 and mAP of up to `QUERIES` queries, as the store answers them."""
    totals: Counter[Any] = Counter()
    for rows in store.stream([queries.column]):
        totals.update(rows[queries.column].to_pylist())
    usable = [i for i, label in enumerate(queries.labels) if totals[label]]
    if not usable:
        raise BadInput(
            f"no query's label is in the store's column {queries.column!r}",
            where=store.name,
            step="name the column that holds the queries' labels",
        )
    chosen = np.random.default_rng(seed).permutation(usable)[:QUERIES]
    depth = min(DEPTH, sum(totals.values()))
    models = ("new", "old") if old_too else ("new",)
    values = {model: np.zeros((len(METRICS), len(chosen))) for model in models}
    for done, i in enumerate(chosen):
        label = queries.labels[int(i)]
        for model in models:
            sides = {"new": queries.new[i]} if model == "new" else {"old": queries.old[i]}
            hits = searcher.search(k=depth, columns=[queries.column], **sides)
            values[model][:, done] = _scores(hits, queries.column, label, totals[label])
        if progress is not None:
            progress(done + 1, len(chosen))
    means = {m: dict(zip(METRICS, 100 * v.mean(axis=1), strict=True)) for m, v in values.items()}
    difference = {}
    if old_too:
        drawn = resampled_means(100 * (values["new"] - values["old"]).T, 1000, seed)
        difference = {m: interval(drawn[:, j]) for j, m in enumerate(METRICS)}
    return Measured(len(chosen), depth, means["new"], means.get("old", {}), difference)


def _scores(hits: Sequence[Hit], column: str, label: Any, relevant: int) -> tuple[float, float]:
    right = np.array([hit.values[column] == label for hit in hits], bool)
    if not right.any():
        return 0.0, 0.0
    places = np.flatnonzero(right) + 1
    precision = np.arange(1, len(places) + 1) / places
    return float(right[0]), float(precision.sum() / relevant)
