"""Scores of two models on one scale, without labels.

A model's scores for a query have a mean and a deviation of their own over the gallery: one model
says 0.3 of everything, another 0.7. What counts is how far an item stands out. Both numbers are
taken from a sample of the gallery's rows, for each query; a thousand rows are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import CROWDED, crowding
from crossfade.distance import Distance
from crossfade.retrieval.ranking import unit_rows
from crossfade.stores.rows import similarities

Float = NDArray[np.float32]
Side = Literal["old", "lifted", "filled"]
# Of fewer rows a deviation says too little.
FEWEST = 30


@dataclass(frozen=True)
class Scale:
    """The mean and the deviation of a query's scores over the gallery."""

    mean: float
    deviation: float

    def standardize(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores less the mean, in deviations.

        >>> Scale(0.5, 0.25).standardize(np.array([1.0, 0.5])).tolist()
        [2.0, 0.0]
        """
        return np.asarray((scores - self.mean) / self.deviation)


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a gallery: old vectors, F of them, and the shared vectors of those among them
    that are filled.

    >>> sample = Sample(np.eye(3, dtype="f4"), np.zeros((3, 4), "f4"), np.zeros((0, 4), "f4"))
    >>> len(sample.old), sample.knows_filled
    (3, False)
    """

    old: Float
    lifted: Float
    filled: Float
    _at_length_one: dict[str, Float] = field(default_factory=dict, init=False, repr=False)
    _crowding: dict[str, Float] = field(default_factory=dict, init=False, repr=False)

    @property
    def share(self) -> float:
        """Of the gallery that is filled, as far as a sample tells."""
        return len(self.filled) / len(self.old)

    @property
    def knows_filled(self) -> bool:
        """Whether there are enough filled rows to bring scores on them to scale."""
        return len(self.filled) >= FEWEST

    def scale(
        self,
        side: Side,
        query: Float,
        distance: Distance,
        *,
        less_in_crowds: bool = False,
    ) -> Scale:
        """The scale of a query on one side of the sample; of B's on old vectors, `less_in_crowds`.

        >>> sample = Sample(np.eye(2, dtype="f4"), np.zeros((0, 2), "f4"), np.zeros((0, 2), "f4"))
        >>> sample.scale("old", np.array([1, 0], "f4"), "dot")
        Scale(mean=0.5, deviation=0.5)
        """
        rows: Float = getattr(self, side)
        by: str = distance
        if distance == "cosine":
            query = query / max(float(np.linalg.norm(query)), 1e-30)
            rows, by = self._unit(side), "dot"
        # A query at a time: of several, the product would be shared out among threads, which on a
        # busy machine wait for each other a hundred times as long.
        known = np.asarray(similarities(by, rows, query), np.float64)
        if less_in_crowds:
            known -= CROWDED * self._own_crowding(distance)
        return Scale(float(known.mean()), max(float(known.std()), 1e-12))

    def crowding(self, rows: Float, distance: Distance) -> Float:
        """How crowded it is about each of some rows, by their old vectors."""
        if distance == "cosine":
            return crowding(unit_rows(rows), self._unit("old"), "dot")
        return crowding(rows, self.old, distance)

    def _unit(self, side: Side) -> Float:
        """Rows of length one: the dearest part of a cosine, and the same for every query."""
        if side not in self._at_length_one:
            self._at_length_one[side] = unit_rows(getattr(self, side))
        return self._at_length_one[side]

    def _own_crowding(self, distance: Distance) -> Float:
        if distance not in self._crowding:
            self._crowding[distance] = crowding(self.old, self.old, distance)
        return self._crowding[distance]
