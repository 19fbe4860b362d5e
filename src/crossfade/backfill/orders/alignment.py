"""By predicted alignment error, after FastFill: where F is likely to be wrong comes first.

FastFill models F(old) − B(new) as a Gaussian whose variance depends on the item, and learns it with
the map. Here the map is fixed, and only the variance is learned: log σ²(x) is linear in the old
vector and F(old), fitted by maximum likelihood on pairs. It needs no classifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float, Groups, Items
from crossfade.backfill.orders.contract import Order
from crossfade.errors import BadInput

Array = NDArray[np.float64]


def _nothing() -> Array:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class AlignmentError(Order):
    """log σ²(x) = weight · features(x) + bias, features of unit variance."""

    name = "alignment-error"
    by_old = True
    learns = True
    saved_as = "alignment"

    weight: Array = field(default_factory=_nothing)
    bias: float = 0.0
    centre: Array = field(default_factory=_nothing)
    scale: Array = field(default_factory=_nothing)
    penalty: float = 1.0

    def learn(self, items: Items, mapped: Float) -> AlignmentError:
        """Minimizes Σ (log σ²_i + e_i / σ²_i) / 2 + penalty · ‖weight‖² / 2 with e_i the mean
        squared error of item i: the negative log-likelihood of a Gaussian, per coordinate.
        """
        from scipy.optimize import minimize

        if len(items.ids) < 2:
            raise BadInput("an alignment error is learned from at least two pairs")
        gaps = np.asarray(items.lifted, np.float64) - mapped
        errors = np.maximum(np.vecdot(gaps, gaps) / gaps.shape[1], 1e-12)
        raw = _features(items.old, items.lifted)
        centre, scale = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-12)
        x = (raw - centre) / scale / np.sqrt(raw.shape[1])

        def loss(parameters: Array) -> tuple[float, Array]:
            log_variance = x @ parameters[:-1] + parameters[-1]
            ratio = errors * np.exp(-np.clip(log_variance, -50, 50))
            value = (
                0.5 * (log_variance + ratio).sum()
                + 0.5 * self.penalty * parameters[:-1] @ parameters[:-1]
            )
            slope = 0.5 * (1 - ratio)
            return float(value), np.append(
                x.T @ slope + self.penalty * parameters[:-1], slope.sum()
            )

        start = np.append(np.zeros(x.shape[1]), np.log(errors.mean()))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
        return replace(
            self,
            weight=found.x[:-1],
            bias=float(found.x[-1]),
            centre=centre,
            scale=scale * np.sqrt(raw.shape[1]),
        )

    def save(self) -> dict[str, NDArray[Any]]:
        return {
            "weight": self.weight,
            "bias": np.array([self.bias]),
            "centre": self.centre,
            "scale": self.scale,
        }

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> AlignmentError:
        weight, centre, scale = (tensors[name] for name in ("weight", "centre", "scale"))
        bias = float(tensors["bias"][0])
        return replace(self, weight=weight, bias=bias, centre=centre, scale=scale)

    def __call__(self, items: Items, groups: Groups | None = None, /) -> Array:
        """Largest predicted variance first."""
        if not len(self.weight):
            raise BadInput("an alignment error is learned from pairs before it tells an order")
        x = (_features(items.old, items.lifted) - self.centre) / self.scale
        return np.asarray(x @ self.weight + self.bias)


def _features(old: Float, lifted: Float) -> Array:
    """The old vector and F(old), which an mlp may have bent in ways the old vector hides."""
    return np.concatenate([old, lifted], axis=1, dtype=np.float64)
