"""Turning an item's scores down inside an ordinary vector store: the quiet direction.

Queries leave some direction of the shared space nearly unused. An item that stores
v·x + √(1 − v²)·u, with u that direction, scores v times what x scores with every query: its volume
is v. The distance, the query path and the ranking among items of one volume stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput

Float = NDArray[np.float32]
LOUDEST = 0.03
"""Beyond this much of a query along it, a direction disturbs what it should only turn down."""


@dataclass(frozen=True, eq=False)
class Quiet:
    """A unit vector (n,), and the root mean square of fresh unit queries along it."""

    direction: Float
    loudness: float

    @classmethod
    def learn(cls, queries: Float, seed: int = 0) -> Quiet:
        """The direction that half of the `queries` (rows, n) use least, measured on the other half.

        >>> rng = np.random.default_rng(0)
        >>> flat = rng.normal(size=(200, 3)).astype("f4") * [1, 1, 0]
        >>> found = Quiet.learn(flat)
        >>> np.abs(found.direction).round(3).tolist(), found.loudness
        ([0.0, 0.0, 1.0], 0.0)
        """
        if len(queries) < 2:
            raise BadInput("a quiet direction is learned from at least two queries")
        lengths = np.linalg.norm(queries, axis=1, keepdims=True)
        unit = (queries / np.where(lengths > 0, lengths, 1.0)).astype(np.float64)
        half = np.random.default_rng(seed).permutation(len(unit)) % 2 == 0
        _, vectors = np.linalg.eigh(unit[half].T @ unit[half])
        direction = vectors[:, 0]
        # An eigenvector's sign is the solver's whim, and a plan must be the same when made again.
        direction *= np.sign(direction[np.argmax(np.abs(direction))])
        loudness = float(np.sqrt(np.mean((unit[~half] @ direction) ** 2)))
        return cls(direction.astype(np.float32), loudness)

    @property
    def enough(self) -> bool:
        """Whether queries hardly notice it."""
        return self.loudness <= LOUDEST

    def turned_down(self, x: Float, volume: NDArray[np.floating] | float) -> Float:
        """Unit vectors whose scores are `volume` times those of the unit vectors `x` (rows, n)."""
        rest = x - np.outer(x @ self.direction, self.direction)
        lengths = np.linalg.norm(rest, axis=1, keepdims=True)
        rest /= np.where(lengths > 0, lengths, 1.0)
        quiet = np.sqrt(1 - np.square(volume)) * self.direction
        return np.asarray(volume * rest + quiet, dtype=np.float32)
