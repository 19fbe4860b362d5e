"""Joining what two models say of some rows, on one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import CROWDED, DEFAULT, Weights
from crossfade.distance import Distance
from crossfade.search.calibration import Sample
from crossfade.stores.rows import similarities

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


@dataclass(frozen=True, eq=False)
class Scores:
    """What each voice says of some rows, as a store's scores are, and the state of each row.

    `old` and `backward` are of the old vectors, which are `vectors`; `shared` is of the shared ones
    and counts where a row is `lifted` or `filled`.
    """

    old: NDArray[np.float64]
    backward: NDArray[np.float64]
    shared: NDArray[np.float64]
    lifted: NDArray[np.bool_]
    filled: NDArray[np.bool_]
    vectors: Float

    @classmethod
    def of(cls, question: Question, rows: Rows, distance: str) -> Scores:
        """By the vectors themselves."""

        def by(query: Float, vectors: Float) -> NDArray[np.float64]:
            return np.asarray(similarities(distance, vectors, query), np.float64)

        return cls(
            by(question.old, rows.old),
            by(question.backward, rows.old),
            by(question.shared, rows.shared),
            rows.lifted,
            rows.filled,
            rows.old,
        )


def joined(
    question: Question,
    scores: Scores,
    sample: Sample,
    distance: Distance,
    weights: Weights = DEFAULT,
) -> NDArray[np.float64]:
    """Scores of rows by both models, on one scale: that of each query over a sample."""
    by_old = sample.scale("old", question.old, distance).standardize(scores.old)
    of_backward = sample.scale("old", question.backward, distance, less_in_crowds=True)
    # What is filled does not ask B, and to tell how crowded it is about a row takes longest of all.
    as_filled = scores.filled & sample.knows_filled
    about = np.zeros(len(as_filled), np.float32)
    about[~as_filled] = sample.crowding(scores.vectors[~as_filled], distance)
    by_backward = of_backward.standardize(scores.backward - CROWDED * about)

    def on_old(backward: float) -> NDArray[np.float64]:
        return np.asarray((1 - backward) * by_old + backward * by_backward)

    out = on_old(weights.old_backward)
    if scores.lifted.any():
        as_lifted = on_old(weights.lifted_backward)
        if weights.lifted_forward:
            of_forward = sample.scale("lifted", question.shared, distance)
            by_forward = of_forward.standardize(scores.shared)
            as_lifted += weights.lifted_forward * (by_forward - by_old)
        out = np.where(scores.lifted, as_lifted, out)
    if as_filled.any():
        by_new = sample.scale("filled", question.shared, distance).standardize(scores.shared)
        both = (1 - weights.filled_new) * by_old + weights.filled_new * by_new
        out = np.where(as_filled, both, out)
    return np.asarray(out)
