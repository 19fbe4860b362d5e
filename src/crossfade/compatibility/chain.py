"""Three models or more: how each later model searches what each earlier one indexed.

Entry (t, k) of the compatibility matrix is the metric of queries by model t on the gallery of model
k, t ≥ k; queries come down one upgrade at a time. Average compatibility is the share of the entries
below the diagonal that beat model k's own, the criterion of Section 4.1 over all pairs of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from crossfade.compatibility.held import Float, Held
from crossfade.compatibility.write import finite
from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.files.whole import read_vectors
from crossfade.retrieval import Relevance, measure
from crossfade.solvers.device import name_device
from crossfade.spaces import fit_dim, normalized
from crossfade.upgrade import Upgrade


@dataclass(frozen=True)
class Chain:
    """For each metric a matrix, row t and column k ≤ t, in percent."""

    models: tuple[str, ...]
    matrices: dict[str, tuple[tuple[float, ...], ...]]

    def average_compatibility(self, metric: str) -> float:
        """
        >>> Chain(("a", "b"), {"mAP": ((40.0,), (45.0, 60.0))}).average_compatibility("mAP")
        1.0
        """
        matrix = self.matrices[metric]
        below = [matrix[t][k] > matrix[k][k] for t in range(len(matrix)) for k in range(t)]
        return float(np.mean(below))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "models": list(self.models),
            "metrics": {
                name: {
                    "matrix": [list(row) for row in matrix],
                    "average_compatibility": self.average_compatibility(name),
                }
                for name, matrix in self.matrices.items()
            },
        }
        return {name: finite(part) for name, part in found.items()}


def evaluate_chain(
    upgrades: Sequence[Upgrade],
    vectors: Sequence[Float],
    relevance: Relevance,
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    *,
    distance: Distance = "cosine",
    device: str = "cpu",
) -> Chain:
    """`vectors[i]` are the same rows by model i, oldest first; `upgrades[i]` leads from i to i + 1.

    >>> from crossfade.retrieval import SameClass
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> def model(noise):
    ...     return (np.eye(4)[labels] + noise * rng.normal(size=(300, 4))).astype(np.float32)
    >>> models = [model(1.0), model(0.5), model(0.1)]
    >>> steps = [Upgrade(solver="closed_form").fit(*models[i : i + 2], labels) for i in (0, 1)]
    >>> chain = evaluate_chain(steps, models, SameClass.among(labels), ["cmc@1"])
    >>> [len(row) for row in chain.matrices["cmc@1"]]
    [1, 2, 3]
    """
    if len(vectors) != len(upgrades) + 1 or not upgrades:
        raise BadInput(
            f"{len(upgrades)} upgrades join {len(upgrades) + 1} models, and vectors of "
            f"{len(vectors)} were given",
            step="give each model's vectors, oldest first",
        )
    for i, upgrade in enumerate(upgrades):
        upgrade.forward_.reads.check_shape(vectors[i], upgrade.backward_.reads)
        upgrade.backward_.reads.check_shape(vectors[i + 1], upgrade.forward_.reads)
    device = name_device(device)
    rows: list[list[dict[str, float]]] = []
    for t in range(len(vectors)):
        row = [_own(vectors[t], relevance, metrics, distance, device)]
        query = vectors[t]
        for k in range(t - 1, -1, -1):
            shared = upgrades[k].backward(query)
            gallery = _placed(upgrades[k], vectors[k])
            dim = min(shared.shape[1], gallery.shape[1])
            found = measure(
                shared[:, :dim],
                gallery[:, :dim],
                relevance,
                metrics,
                distance=distance,
                device=device,
            )
            row.insert(0, found.means())
            query = _lowered(upgrades[k], shared)
        rows.append(row)
    known = [(u.config_.old.model, u.config_.new.model) for u in upgrades]
    ends = [("", known[0][0]), *((a[1], b[0]) for a, b in pairwise(known)), (known[-1][1], "")]
    names = [one or other or f"model {i}" for i, (one, other) in enumerate(ends, 1)]
    return Chain(
        tuple(names),
        {m: tuple(tuple(entry[m] for entry in row) for row in rows) for m in rows[0][0]},
    )


def continue_chain(
    first: Upgrade,
    held: Held,
    then: Sequence[tuple[Upgrade | str, Float | str]],
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    *,
    distance: Distance = "cosine",
    device: str = "cpu",
) -> Chain:
    """A chain that goes on from `first` and its held-out rows: each further upgrade, or its folder,
    comes with its new model's vectors of the same rows, or their file; oldest first."""
    if held.relevance is None or held.own is None:
        raise BadInput(
            "a sequence of models is measured on labelled rows that query each other",
            step="leave --then out, or give labels and no separate queries",
        )
    upgrades, vectors = [first], [held.gallery_old, held.gallery_new]
    for number, (upgrade, source) in enumerate(then, 1):
        upgrades.append(Upgrade.load(upgrade) if isinstance(upgrade, str) else upgrade)
        vectors.append(read_vectors(source) if isinstance(source, str) else source)
        if len(vectors[-1]) != held.gallery:
            raise BadInput(
                f"has {len(vectors[-1])} rows for {held.gallery} of the pairs",
                where=source if isinstance(source, str) else f"further upgrade {number}",
            )
    return evaluate_chain(
        upgrades,
        vectors,
        held.relevance,
        metrics,
        distance=distance,
        device=device,
    )


def _own(
    vectors: Float, relevance: Relevance, metrics: Sequence[str], distance: Distance, device: str
) -> dict[str, float]:
    return measure(vectors, vectors, relevance, metrics, distance=distance, device=device).means()


def _placed(upgrade: Upgrade, old: Float) -> Float:
    placed = normalized(old, upgrade.forward_.reads.normalization, "old")
    return placed if upgrade.axes_ is None else placed @ upgrade.axes_.T


def _lowered(upgrade: Upgrade, shared: Float) -> Float:
    """Shared-space vectors as the old model might have made them, for the next upgrade's B."""
    lowered = fit_dim(shared, upgrade.old_dim_)
    return lowered if upgrade.axes_ is None else lowered @ upgrade.axes_
