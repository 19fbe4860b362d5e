"""The zero-shot column (Table 2): what B does to the new model on data of another task."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.compatibility.held import Float
from crossfade.distance import Distance
from crossfade.files.whole import read_column, read_vectors
from crossfade.pairs import Pairs
from crossfade.retrieval import Relevance, SameClass, measure
from crossfade.spaces import normalized
from crossfade.upgrade import Upgrade

METRICS = ("cmc@1", "mAP")


def read_task(vectors: str, labels: str) -> tuple[Float, SameClass]:
    """New vectors of another task and who is relevant to whom among them, from files."""
    new = read_vectors(vectors)
    pairs = Pairs.from_arrays(new, new, read_column(labels), name=vectors)
    return pairs.new, SameClass.among(np.asarray(pairs.labels))


@dataclass(frozen=True)
class Change:
    """new/new, B(new)/B(new), and the change from one to the other in points."""

    new: float
    mapped: float
    change: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class ZeroShot:
    """A change for each metric of the paper."""

    metrics: dict[str, Change]
    queries: int

    @classmethod
    def of(
        cls,
        upgrade: Upgrade,
        new: Float,
        relevance: Relevance,
        distance: Distance = "cosine",
        resamples: int = 2000,
        seed: int = 0,
    ) -> ZeroShot:
        """`new` are the new model's vectors of the other data, each row a query for the others."""
        side = upgrade.backward_.reads
        side.check_shape(new, upgrade.forward_.reads)
        plain = normalized(new, side.normalization, "new")
        mapped = upgrade.backward(new)
        found = [measure(x, x, relevance, METRICS, distance=distance) for x in (plain, mapped)]
        out = {}
        for metric in METRICS:
            values = np.stack([m.values[metric] for m in found], axis=1) * 100.0
            values = values[np.isfinite(values[:, 0])]
            before, after = values.mean(axis=0)
            resampled = resampled_means(values, resamples, seed)
            out[metric] = Change(
                float(before),
                float(after),
                float(after - before),
                interval(resampled[:, 1] - resampled[:, 0]),
            )
        return cls(out, found[0].queries)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {"queries": self.queries, **{m: asdict(c) for m, c in self.metrics.items()}}
