"""What every solver is given, and what every solver gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.cases import case_vectors
from crossfade.maps import Affine, Map, Mlp, NearOrthogonal, Orthogonal
from crossfade.retrieval import Relevance, SameClass, measure, neighbours
from crossfade.solvers.moments import Array, Moments
from crossfade.solvers.settings import Settings

BackwardMap = Orthogonal | NearOrthogonal | Affine
ForwardMap = Affine | Mlp
Scores = dict[str, dict[str, float]]
GUARD = "B(new)/old"


@dataclass(frozen=True, eq=False)
class Rows:
    """Pairs ready for learning: normalized, and old also as the shared space sees it (`placed`).

    `placed` is (rows, min(d, n)): rotated where asked, cut where old is longer, not padded.
    """

    old: NDArray[np.float32]
    new: NDArray[np.float32]
    placed: NDArray[np.float32]
    labels: NDArray[np.int64] | None


class Selection:
    """Scores of a pair of maps on the validation split.

    Relevant are the items of the query's class; without labels, its ten nearest neighbours under
    the new model, which is what an upgrade is meant to bring (DESIGN decision on optional labels).
    That chooses a state and judges nothing: it is agreement with the new model. Of few rows a
    quarter of the others are neighbours, for if all were, every ranking would be right.
    """

    def __init__(
        self, rows: Rows, cases: Sequence[str], metrics: Sequence[str], device: str = "cpu"
    ) -> None:
        self.rows, self.device = rows, device
        self.cases = tuple(dict.fromkeys((*cases, GUARD)))
        self.chosen = tuple(cases)
        self.metrics = tuple(metrics)
        self.neighbours = 0 if rows.labels is not None else _nearest(len(rows.new))
        """So many of a row's nearest are relevant to it; 0 with labels."""
        self.relevance: Relevance = (
            neighbours(rows.new, rows.new, self.neighbours, own=np.arange(len(rows.new)))
            if rows.labels is None
            else SameClass.among(rows.labels)
        )

    @property
    def informative(self) -> bool:
        """Whether some row is not relevant to some other, so that a ranking can be wrong."""
        if self.rows.labels is None:
            return self.neighbours < len(self.rows.new) - 1
        return len(np.unique(self.rows.labels)) > 1

    def scores(self, backward: Map, forward: Map) -> Scores:
        """Every case and metric in percent."""
        vectors = {
            "old": self.rows.placed,
            "new": self.rows.new,
            "B(new)": backward(self.rows.new),
            "F(old)": forward(self.rows.old),
        }
        out: Scores = {}
        for case in self.cases:
            # Nothing is cut in old/old: it is the index as it stands today.
            whole = {**vectors, "old": self.rows.old} if case == "old/old" else vectors
            query, gallery = case_vectors(case, whole)
            out[case] = measure(
                query, gallery, self.relevance, self.metrics, device=self.device
            ).means()
        return out

    def mean(self, scores: Scores) -> float:
        """The number that is maximized: the mean over the chosen cases and metrics."""
        return float(np.mean([scores[c][m] for c in self.chosen for m in self.metrics]))

    def guarded(self, scores: Scores, closed: Scores) -> bool:
        """Whether B(new)/old is at least the closed form's in every metric."""
        return all(scores[GUARD][m] >= closed[GUARD][m] for m in self.metrics)


def _nearest(rows: int) -> int:
    """
    >>> _nearest(2), _nearest(10), _nearest(2000)
    (1, 2, 10)
    """
    return min(10, max(1, (rows - 1) // 4))


@dataclass(frozen=True, eq=False)
class Problem:
    """A fit to be done, with the closed form already at hand."""

    settings: Settings
    train: Rows
    selection: Selection
    moments: Moments
    rotation: Array
    ridge: tuple[Array, Array]
    report: Callable[[dict[str, Any]], None]


@dataclass(frozen=True, eq=False)
class Solution:
    """Learned maps, how they came about, and what to tell the user."""

    backward: BackwardMap | Mlp
    forward: ForwardMap
    history: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
