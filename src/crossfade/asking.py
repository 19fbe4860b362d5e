"""Ways of asking a gallery that is under way from one model to another, and what each counts.

    new    B(new) alone, the paper's way; plain where the store is in the new model's space
    old    the old model's query on the old vectors: today's search
    both   the old query on the old vectors and the new one on the shared ones, scores joined
    blend  one vector of both, on the old vectors

`both` needs no map to be good and no label: a filled row counts what both models say of it, any
other what the old model says and, with less weight, what the maps say (`Weights`).

For rows that are all at hand, a joined score is an inner product: of a query made of both models'
queries, each in units of its own deviation, and an item made of both models' vectors. So whatever
ranks by inner products (`crossfade.retrieval`, curves of backfilling) ranks by it, exactly.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
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
    """What each voice counts, by the state of a row; the old model has what is left of one.

    The defaults need no data to choose by; a plan has better ones where its lookups tell.
    """

    old_backward: float = 0.2
    """B on the old vector of a row that is old."""
    lifted_backward: float = 0.2
    """B on the old vector of a lifted row."""
    lifted_forward: float = 0.0
    """The new model on F(old) of a lifted row."""
    filled_new: float = 0.5
    """The new model on a filled row."""
    blend: float = BLEND
    """Of B in one vector of both."""

    def __post_init__(self) -> None:
        lifted = self.lifted_backward + self.lifted_forward
        for value in (*astuple(self), lifted):
            if not 0 <= value <= 1 + 1e-9:
                raise ValueError(f"a weight of {value}")

    def __str__(self) -> str:
        """
        >>> print(Weights())
        old 0.2, lifted 0.2 + 0, filled 0.5, blend 0.3
        """
        return (
            f"old {self.old_backward:g}, lifted {self.lifted_backward:g} + "
            f"{self.lifted_forward:g}, filled {self.filled_new:g}, blend {self.blend:g}"
        )


DEFAULT = Weights()


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries and items whose inner products are the scores of one way of asking."""

    queries: Float
    items: Float

    @classmethod
    def joined(cls, *voices: tuple[Asked, float]) -> Asked:
        """Scores that are the weighted sums of others'; voices on the same items share them."""
        found: list[list[Float]] = []
        for voice, weight in voices:
            if not weight:
                continue
            asked = voice.queries * np.float32(weight)
            same = next((one for one in found if one[1] is voice.items), None)
            if same is None:
                found.append([asked, voice.items])
            else:
                same[0] = same[0] + asked
        if len(found) == 1:
            return cls(*found[0])
        return cls(*(np.concatenate(sides, axis=1) for sides in zip(*found, strict=True)))


@dataclass(frozen=True, eq=False)
class Both:
    """Queries of both models, put to a gallery of old vectors that is filled bit by bit.

    `old` (queries, d) and `gallery_old` (items, d) are the old model's, `backward` B(new) of the
    same queries in the shared space, `gallery_lifted` F(old) of the items.

    >>> rng = np.random.default_rng(0)
    >>> q, g = rng.normal(size=(2, 4)).astype("f4"), rng.normal(size=(60, 4)).astype("f4")
    >>> both = Both(q, q, g)
    >>> as_old, as_filled = both.as_old(), both.as_filled(g)
    >>> scores = as_old.queries @ as_old.items.T
    >>> bool(np.allclose(scores, as_filled.queries @ as_filled.items.T, atol=1e-4))
    True
    >>> bool(np.allclose(scores.mean(axis=1), 0, atol=1e-4))
    True
    """

    old: Float
    backward: Float
    gallery_old: Float
    gallery_lifted: Float | None = None
    distance: Distance = "cosine"
    seed: int = 0

    def as_old(self, weights: Weights = DEFAULT, rows: Float | None = None) -> Asked:
        """As scores of rows that are old: the old model's, and what B says.

        Of the gallery's own, or of other old vectors of which it is a sample.
        """
        asked = self._on_old(weights.old_backward)
        if rows is None:
            return asked
        _, shown = comparable(self.old, rows, self.distance)
        return Asked(asked.queries, _with_ones(shown))

    def as_lifted(self, weights: Weights = DEFAULT) -> Asked:
        """As scores of lifted rows: as of old ones, and what the new model says of F(old)."""
        if not weights.lifted_forward:
            return self._on_old(weights.lifted_backward)
        left = 1 - weights.lifted_backward - weights.lifted_forward
        return Asked.joined(
            (self._by_old, left),
            (self._by_backward, weights.lifted_backward),
            (self._by_forward, weights.lifted_forward),
        )

    def as_filled(self, stored: Float, weights: Weights = DEFAULT) -> Asked:
        """As scores of rows that are filled, with what they store in the shared space."""
        by_new = self._voice(self.backward, stored)
        return Asked.joined((self._by_old, 1 - weights.filled_new), (by_new, weights.filled_new))

    def _on_old(self, backward: float) -> Asked:
        return Asked.joined((self._by_old, 1 - backward), (self._by_backward, backward))

    @cached_property
    def _by_old(self) -> Asked:
        return self._voice(self.old, self.gallery_old)

    @cached_property
    def _by_backward(self) -> Asked:
        found = self._voice(fit_dim(self.backward, self.old.shape[1]), self.gallery_old)
        return Asked(found.queries, self._by_old.items)

    @cached_property
    def _by_forward(self) -> Asked:
        if self.gallery_lifted is None:
            raise BadInput("F(old) has a voice, and the gallery was not lifted")
        return self._voice(self.backward, self.gallery_lifted)

    def _voice(self, queries: Float, items: Float) -> Asked:
        """Queries and items whose inner products are a voice's scores on the common scale."""
        q, g = comparable(queries, items, self.distance)
        rng = np.random.default_rng(self.seed)
        drawn = g if len(g) <= SAMPLED else g[rng.choice(len(g), SAMPLED, replace=False)]
        # A query's mean and deviation over the sample are those of the sample's own moments.
        mean = drawn.mean(axis=0, dtype=np.float64)
        spread = np.cov(drawn, rowvar=False, bias=True).reshape(len(mean), -1)
        wide = q.astype(np.float64)
        deviation = np.sqrt(np.maximum(np.vecdot(wide @ spread, wide), 0.0))
        scale = 1 / np.maximum(deviation, 1e-12)
        asked = np.concatenate([wide, -(wide @ mean)[:, None]], axis=1) * scale[:, None]
        return Asked(asked.astype(np.float32), _with_ones(g))


def _with_ones(rows: Float) -> Float:
    return np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)


def blended(first: Float, second: Float, a: float = BLEND) -> Float:
    """Unit vectors of two, rows or one: a of the first, 1 − a of the second.

    >>> blended(np.array([2, 0], "f4"), np.array([0, 1], "f4"), 0.5).round(3).tolist()
    [0.7070000171661377, 0.7070000171661377]
    """
    mixed = a * _unit(first) + (1 - a) * _unit(second)
    return np.asarray(_unit(mixed), np.float32)


def _unit(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30))
