"""By predicted alignment error, after FastFill: where F is likely to be wrong comes first.

FastFill models F(old) − B(new) as a Gaussian whose variance depends on the item, and learns it with
the map. Here the map is fixed, and only the variance is learned: log σ²(x) is linear in the old
vector and F(old), fitted by maximum likelihood on pairs. It needs no classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float, Groups, Items
from crossfade.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AlignmentError:
    """log σ²(x) = weight · features(x) + bias, features of unit variance."""

    weight: Array
    bias: float
    centre: Array
    scale: Array

    @classmethod
    def learn(
        cls, old: Float, lifted: Float, mapped: Float, penalty: float = 1.0
    ) -> AlignmentError:
        """From pairs that F was not trained on; `mapped` is B(new).

        Minimizes Σ (log σ²_i + e_i / σ²_i) / 2 + penalty · ‖weight‖² / 2 with e_i the mean squared
        error of item i: the negative log-likelihood of a Gaussian, per coordinate.
        """
        from scipy.optimize import minimize

        if len(old) < 2:
            raise BadInput("an alignment error is learned from at least two pairs")
        gaps = np.asarray(lifted, np.float64) - mapped
        errors = np.maximum(np.vecdot(gaps, gaps) / gaps.shape[1], 1e-12)
        raw = _features(old, lifted)
        centre, scale = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-12)
        x = (raw - centre) / scale / np.sqrt(raw.shape[1])

        def loss(parameters: Array) -> tuple[float, Array]:
            log_variance = x @ parameters[:-1] + parameters[-1]
            ratio = errors * np.exp(-np.clip(log_variance, -50, 50))
            value = (
                0.5 * (log_variance + ratio).sum()
                + 0.5 * penalty * parameters[:-1] @ parameters[:-1]
            )
            slope = 0.5 * (1 - ratio)
            return float(value), np.append(x.T @ slope + penalty * parameters[:-1], slope.sum())

        start = np.append(np.zeros(x.shape[1]), np.log(errors.mean()))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
        return cls(found.x[:-1], float(found.x[-1]), centre, scale * np.sqrt(raw.shape[1]))

    def __call__(self, items: Items, groups: Groups | None = None, /) -> Array:
        """Largest predicted variance first."""
        x = (_features(items.old, items.lifted) - self.centre) / self.scale
        return np.asarray(x @ self.weight + self.bias)


def _features(old: Float, lifted: Float) -> Array:
    """The old vector and F(old), which an mlp may have bent in ways the old vector hides."""
    return np.concatenate([old, lifted], axis=1, dtype=np.float64)
