"""Joining what two models say of some rows, on one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import Weights
from crossfade.search.calibration import Sample, standardized

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Question:
    """One query in every form it is asked in: of the old model, of the new one in the shared
    space, and B of the new one as a query on old vectors."""

    old: Float
    shared: Float
    backward: Float


def joined(
    question: Question,
    old: Float,
    shared: Float,
    filled: NDArray[np.bool_],
    sample: Sample,
    metric: str,
    weights: Weights | None = None,
) -> NDArray[np.float64]:
    """Scores of rows by both models, on one scale.

    `old` (m, d) and `shared` (m, n) are the rows' vectors; `shared` counts where `filled` says so.
    """
    weights = weights or Weights()
    by_old = standardized(question.old, old, sample.old, metric)
    by_backward = standardized(question.backward, old, sample.old, metric)
    out = weights.other_old * by_old + weights.other_backward * by_backward
    if filled.any() and sample.knows_filled:
        by_new = standardized(question.shared, shared, sample.filled, metric)
        both = weights.filled_old * by_old + weights.filled_new * by_new
        out = np.where(filled, both, out)
    return np.asarray(out)
