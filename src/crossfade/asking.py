"""Ways of asking a gallery that is under way from one model to another, and what each counts.

    new    B(new) alone, the paper's way; plain where the store is in the new model's space
    old    the old model's query on the old vectors: today's search
    both   the old query on the old vectors and the new one on the shared ones, scores joined
    blend  one vector of both, on the old vectors

`both` needs no map to be good and no label: a filled row counts what both models say of it, any
other what the old model says and, with less weight, what B says.

For rows that are all at hand, a joined score is an inner product: of a query made of both models'
queries, each in units of its own deviation, and an item made of both models' vectors. So whatever
ranks by inner products (`crossfade.retrieval`, curves of backfilling) ranks by it, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.retrieval.ranking import Distance, comparable
from crossfade.spaces import fit_dim

Float = NDArray[np.float32]
Asking = Literal["new", "old", "both", "blend"]
WAYS: tuple[Asking, ...] = ("new", "old", "both", "blend")
BLEND = 0.3
"""The new model's share of a blended query on old vectors."""
SAMPLED = 1000
"""Rows from which a query's mean and deviation are taken."""


@dataclass(frozen=True)
class Weights:
    """What each voice counts: of a filled row the old and the new model, of others old and B."""

    filled_old: float = 0.5
    filled_new: float = 0.5
    other_old: float = 0.8
    other_backward: float = 0.2


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries and items whose inner products are the scores of one way of asking."""

    queries: Float
    items: Float


@dataclass(frozen=True, eq=False)
class Both:
    """Queries of both models, put to a gallery of old vectors that is filled bit by bit.

    `old` (queries, d) and `gallery_old` (items, d) are the old model's, `backward` B(new) of the
    same queries in the shared space.

    >>> rng = np.random.default_rng(0)
    >>> q, g = rng.normal(size=(2, 4)).astype("f4"), rng.normal(size=(60, 4)).astype("f4")
    >>> both = Both(q, q, g)
    >>> unfilled, filled = both.unfilled(), both.filled(g)
    >>> scores = unfilled.queries @ unfilled.items.T
    >>> bool(np.allclose(scores, filled.queries @ filled.items.T, atol=1e-4))
    True
    >>> bool(np.allclose(scores.mean(axis=1), 0, atol=1e-4))
    True
    """

    old: Float
    backward: Float
    gallery_old: Float
    distance: Distance = "cosine"
    weights: Weights = Weights()
    seed: int = 0

    def unfilled(self, rows: Float | None = None) -> Asked:
        """As scores of rows that are not filled: the old model's, and what B says.

        Of the gallery's own, or of other old vectors of which it is a sample.
        """
        on_old = fit_dim(self.backward, self.old.shape[1])
        by_old, items = self._voice(self.old, self.gallery_old, self.weights.other_old)
        by_backward, _ = self._voice(on_old, self.gallery_old, self.weights.other_backward)
        if rows is not None:
            _, shown = comparable(self.old, rows, self.distance)
            items = np.concatenate([shown, np.ones((len(shown), 1), np.float32)], axis=1)
        return Asked(by_old + by_backward, items)

    def filled(self, stored: Float) -> Asked:
        """As scores of rows that are filled, with what they store in the shared space."""
        by_old, old = self._voice(self.old, self.gallery_old, self.weights.filled_old)
        by_new, new = self._voice(self.backward, stored, self.weights.filled_new)
        return Asked(np.concatenate([by_old, by_new], axis=1), np.concatenate([old, new], axis=1))

    def _voice(self, queries: Float, items: Float, weight: float) -> tuple[Float, Float]:
        """Queries and items whose inner products are a voice's scores on the common scale."""
        q, g = comparable(queries, items, self.distance)
        rng = np.random.default_rng(self.seed)
        drawn = g if len(g) <= SAMPLED else g[rng.choice(len(g), SAMPLED, replace=False)]
        # A query's mean and deviation over the sample are those of the sample's own moments.
        mean = drawn.mean(axis=0, dtype=np.float64)
        spread = np.cov(drawn, rowvar=False, bias=True).reshape(len(mean), -1)
        wide = q.astype(np.float64)
        deviation = np.sqrt(np.maximum(np.vecdot(wide @ spread, wide), 0.0))
        scale = weight / np.maximum(deviation, 1e-12)
        asked = np.concatenate([wide, -(wide @ mean)[:, None]], axis=1) * scale[:, None]
        ones = np.ones((len(g), 1), np.float32)
        return asked.astype(np.float32), np.concatenate([g, ones], axis=1)


def blended(first: Float, second: Float, a: float = BLEND) -> Float:
    """Unit vectors of two, rows or one: a of the first, 1 − a of the second.

    >>> blended(np.array([2, 0], "f4"), np.array([0, 1], "f4"), 0.5).round(3).tolist()
    [0.7070000171661377, 0.7070000171661377]
    """
    mixed = a * _unit(first) + (1 - a) * _unit(second)
    return np.asarray(_unit(mixed), np.float32)


def _unit(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30))
