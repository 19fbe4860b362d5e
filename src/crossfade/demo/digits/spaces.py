"""The five spaces of Figure 3, in two dimensions so that they can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.solvers.settings import BackwardKind
from crossfade.upgrade import Upgrade

KINDS: tuple[BackwardKind, ...] = ("affine", "orthogonal", "near-orthogonal")
LAMBDA = 1.0


@dataclass(frozen=True, eq=False)
class Mapped:
    """The new model's test vectors (rows, 2) under one kind of B, and what B did to them."""

    vectors: NDArray[np.float32]
    weight: NDArray[np.float32]
    deviation: float
    distance: float

    @property
    def stretch(self) -> tuple[float, float]:
        """How much B lengthens a vector: least and most, over all directions."""
        values = np.linalg.svd(self.weight.astype(np.float64), compute_uv=False)
        return float(values.min()), float(values.max())

    def record(self) -> dict[str, Any]:
        """What `demo.json` says of it."""
        return {
            "deviation": self.deviation,
            "stretch": list(self.stretch),
            "distance_to_old": self.distance,
            "weight": self.weight.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Spaces:
    """Source (new), target (old) and the source under each kind of B; `labels` for all of them."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]
    mapped: dict[str, Mapped]
    labels: NDArray[np.int64]


def map_spaces(
    train: tuple[NDArray[np.float32], NDArray[np.float32]],
    test: tuple[NDArray[np.float32], NDArray[np.float32]],
    train_labels: NDArray[np.int64],
    test_labels: NDArray[np.int64],
    seed: int,
) -> Spaces:
    """Fit each kind of B to the (old, new) training vectors and apply it to the test vectors.

    L_B alone decides, in closed form: the figure shows what each set of maps can and cannot do to
    the new space on its way to the old one.
    """
    # A network's scale is an accident of its training. With mean length one on both sides the
    # panels can share their axes, and what B does to the shape is not hidden by the scale.
    scales = [np.linalg.norm(side, axis=1).mean() for side in train]
    train_old, train_new = (side / scale for side, scale in zip(train, scales, strict=True))
    old, new = (side / scale for side, scale in zip(test, scales, strict=True))
    mapped: dict[str, Mapped] = {}
    for kind in KINDS:
        upgrade = Upgrade(
            backward_map=kind,
            lam=LAMBDA,
            solver="closed_form",
            normalize_old="none",
            normalize_new="none",
            seed=seed,
        ).fit(train_old, train_new, train_labels)
        vectors = upgrade.backward(new)
        weight: NDArray[np.float32] = upgrade.backward_.map.tensors()["weight"]
        distance = float(np.square(vectors - old).sum(axis=1).mean())
        mapped[kind] = Mapped(vectors, weight, upgrade.lambda_reached_, distance)
    return Spaces(new, old, mapped, test_labels)
