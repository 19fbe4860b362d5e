"""Ways of asking a store that is under way from one model to another.

    new    B(new) alone, the paper's way; plain where the store is in the new model's space
    old    the old model's query on the old vectors: today's search
    both   the old query on the old vectors and the new one on the shared ones, scores joined
    blend  one vector of both, on the old vectors

`both` needs no map to be good and no label: a filled row counts what both models say of it, any
other what the old model says and, with less weight, what B says. So it is at no point worse than
today's search by more than chance, and better from the first minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.search.calibration import Sample, standardized

Float = NDArray[np.float32]
Asking = Literal["new", "old", "both", "blend"]
WAYS: tuple[Asking, ...] = ("new", "old", "both", "blend")


@dataclass(frozen=True)
class Weights:
    """What each voice counts: of a filled row the old and the new model, of others old and B."""

    filled_old: float = 0.5
    filled_new: float = 0.5
    other_old: float = 0.7
    other_backward: float = 0.3


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


def blended(first: Float, second: Float, a: float) -> Float:
    """One unit vector of two: a of the first, 1 − a of the second.

    >>> blended(np.array([2, 0], "f4"), np.array([0, 1], "f4"), 0.5).round(3).tolist()
    [0.7070000171661377, 0.7070000171661377]
    """
    units = [x / max(float(np.linalg.norm(x)), 1e-30) for x in (first, second)]
    mixed = a * units[0] + (1 - a) * units[1]
    return np.asarray(mixed / max(float(np.linalg.norm(mixed)), 1e-30), np.float32)
