"""Scores of two models on one scale, without labels.

A model's scores for a query have a mean and a deviation of their own over the gallery: one model
says 0.3 of everything, another 0.7. What counts is how far an item stands out. Both numbers are
taken from a sample of the gallery's rows, for each query; a thousand rows are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.stores.rows import similarities

Float = NDArray[np.float32]
# Of fewer rows a deviation says too little.
FEWEST = 30


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

    @property
    def knows_filled(self) -> bool:
        """Whether there are enough filled rows to bring scores on them to scale."""
        return len(self.filled) >= FEWEST


def standardized(query: Float, rows: Float, sample: Float, metric: str) -> NDArray[np.float64]:
    """Scores of `rows` for a query, less the mean of the sample's, in the sample's deviations.

    >>> sample = np.array([[1, 0], [0, 1]], "f4")
    >>> standardized(np.array([1, 0], "f4"), np.array([[1, 0]], "f4"), sample, "dot").tolist()
    [1.0]
    """
    known = np.asarray(similarities(metric, sample, query), np.float64)
    deviation = max(float(known.std()), 1e-12)
    scores = np.asarray(similarities(metric, rows, query), np.float64)
    return np.asarray((scores - known.mean()) / deviation)
