"""Joining what two models say of some rows, on one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import DEFAULT, Weights
from crossfade.search.calibration import Sample, standardized

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Question:
    """One query in every form it is asked in: of the old model, of the new one in the shared
    space, and B of the new one as a query on old vectors."""

    old: Float
    shared: Float
    backward: Float


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a store that are scored: their old and their shared vectors, and the state of each.

    A shared vector counts where a row is `lifted` or `filled`.
    """

    old: Float
    shared: Float
    lifted: NDArray[np.bool_]
    filled: NDArray[np.bool_]


def joined(
    question: Question, rows: Rows, sample: Sample, metric: str, weights: Weights = DEFAULT
) -> NDArray[np.float64]:
    """Scores of rows by both models, on one scale."""
    by_old = standardized(question.old, rows.old, sample.old, metric)
    by_backward = standardized(question.backward, rows.old, sample.old, metric)

    def on_old(backward: float) -> NDArray[np.float64]:
        return np.asarray((1 - backward) * by_old + backward * by_backward)

    out = on_old(weights.old_backward)
    if rows.lifted.any():
        as_lifted = on_old(weights.lifted_backward)
        if weights.lifted_forward:
            by_forward = standardized(question.shared, rows.shared, sample.lifted, metric)
            as_lifted += weights.lifted_forward * (by_forward - by_old)
        out = np.where(rows.lifted, as_lifted, out)
    if rows.filled.any() and sample.knows_filled:
        by_new = standardized(question.shared, rows.shared, sample.filled, metric)
        both = (1 - weights.filled_new) * by_old + weights.filled_new * by_new
        out = np.where(rows.filled, both, out)
    return np.asarray(out)
