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

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.retrieval.ranking import comparable
from crossfade.spaces import fit_dim
from crossfade.threads import product_alone

Float = NDArray[np.float32]
Asking = Literal["new", "old", "both", "blend"]
WAYS: tuple[Asking, ...] = ("new", "old", "both", "blend")
AskedFrom = tuple[tuple[float, Asking], ...]
"""Shares of a gallery that is filled, rising from 0, and how it is asked from each of them on."""
BLEND = 0.3
"""The new model's share of a blended query on old vectors."""
SAMPLED = 1000
"""Rows from which a query's mean and deviation are taken."""
NEIGHBOURS = 10
"""So many of a sample tell how crowded it is about a row."""
CROWDED = 0.5
"""By so much of it what B says of a row is less: rows in a crowd are near to every query that B
has not quite brought to its place."""
_SCORE_BYTES = 64 << 20
_FEW = 128


def asking_at(asked: AskedFrom, share: float) -> Asking:
    """How a gallery is asked of which `share` is filled.

    >>> asking_at(((0.0, "both"), (0.6, "new")), 0.59), asking_at(((0.0, "both"),), 1.0)
    ('both', 'both')
    """
    return [way for first, way in asked if first <= share + 1e-9][-1]


@dataclass(frozen=True)
class Weights:
    """What each voice counts, by the state of a row; the old model has what is left of one.

    The defaults need no data to choose by; a plan has better ones where its lookups tell.
    """

    old_backward: float = 0.3
    """B on the old vector of a row that is old."""
    lifted_backward: float = 0.3
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
        old 0.3, lifted 0.3 + 0, filled 0.5, blend 0.3
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
    >>> as_old, as_filled = both.as_old(Weights(old_backward=0)), both.as_filled(g)
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

    def as_old(self, weights: Weights = DEFAULT) -> Asked:
        """As scores of rows that are old: the old model's, and what B says."""
        return self._on_old(weights.old_backward)

    def rows_old(self, old: Float) -> Float:
        """Items of `as_old` for other rows, of which the gallery is a sample."""
        return self._shown_old(old)

    def rows_lifted(self, old: Float, stored: Float, weights: Weights = DEFAULT) -> Float:
        """Items of `as_lifted` for other rows and what they store in the shared space."""
        return self._shown(old, stored, 1 - weights.lifted_forward, weights.lifted_forward)

    def rows_filled(self, old: Float, stored: Float, weights: Weights = DEFAULT) -> Float:
        """Items of `as_filled` for other rows and what they store in the shared space."""
        return self._shown(old, stored, 1 - weights.filled_new, weights.filled_new)

    def _shown(self, old: Float, stored: Float, by_old: float, by_new: float) -> Float:
        parts = [self._shown_old(old)] if by_old else []
        if by_new:
            parts.append(_with_ones(comparable(self.backward, stored, self.distance)[1]))
        return np.concatenate(parts, axis=1)

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
        found = self._voice(self.old, self.gallery_old)
        # How crowded it is about a row is B's to ask for.
        blank = np.zeros((len(found.queries), 1), np.float32)
        asked = np.concatenate([found.queries[:, :-1], blank, found.queries[:, -1:]], axis=1)
        return Asked(asked, self._shown_old(self.gallery_old))

    @cached_property
    def _by_backward(self) -> Asked:
        on_old = fit_dim(self.backward, self.old.shape[1])
        q, _ = comparable(on_old, self._sample(self.gallery_old), self.distance)
        less = np.full((len(q), 1), -CROWDED, np.float32)
        shown = self._by_old.items
        asked = _standardized(np.concatenate([q, less], axis=1), self._sample(shown)[:, :-1])
        return Asked(asked, shown)

    def _shown_old(self, rows: Float) -> Float:
        """Old vectors as both the old model and B ask for them."""
        _, shown = comparable(self.old, rows, self.distance)
        about = crowding(rows, self._sample(self.gallery_old), self.distance)
        return _with_ones(np.concatenate([shown, about[:, None]], axis=1))

    @cached_property
    def _by_forward(self) -> Asked:
        if self.gallery_lifted is None:
            raise BadInput("F(old) has a voice, and the gallery was not lifted")
        return self._voice(self.backward, self.gallery_lifted)

    def _voice(self, queries: Float, items: Float) -> Asked:
        """Queries and items whose inner products are a voice's scores on the common scale."""
        q, g = comparable(queries, items, self.distance)
        return Asked(_standardized(q, self._sample(g)), _with_ones(g))

    def _sample(self, rows: Float) -> Float:
        """The same rows of the gallery, whatever is known of them."""
        if len(rows) <= SAMPLED:
            return rows
        rng = np.random.default_rng(self.seed)
        return rows[rng.choice(len(rows), SAMPLED, replace=False)]


def _standardized(queries: Float, sample: Float) -> Float:
    """Queries that score rows in deviations from the sample's mean, given rows with a one added."""
    # A query's mean and deviation over the sample are those of the sample's own moments.
    mean = sample.mean(axis=0, dtype=np.float64)
    spread = np.cov(sample, rowvar=False, bias=True).reshape(len(mean), -1)
    wide = queries.astype(np.float64)
    deviation = np.sqrt(np.maximum(np.vecdot(wide @ spread, wide), 0.0))
    scale = 1 / np.maximum(deviation, 1e-12)
    asked = np.concatenate([wide, -(wide @ mean)[:, None]], axis=1) * scale[:, None]
    return np.asarray(asked, np.float32)


def crowding(rows: Float, sample: Float, distance: Distance) -> Float:
    """How near the neighbours of each row are: the mean similarity of the ten of a sample that are
    nearest, but for the very nearest, which may be the row itself.

    >>> rows = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0]], "f4")
    >>> [round(x, 2) for x in crowding(rows, rows, "cosine").tolist()]
    [0.13, 0.32, 0.32, -0.8]
    """
    count = min(NEIGHBOURS, len(sample) - 1)
    out = np.zeros(len(rows), np.float32)
    if count < 1:
        return out
    step = max(1, _SCORE_BYTES // (4 * len(sample)))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        q, g = comparable(rows[part], sample, distance)
        # What a search finds is little, and waits for nobody.
        scores = product_alone(q, g) if len(rows) <= _FEW else q @ g.T
        if distance == "l2":
            # What does not depend on the sample depends on the row, and rows are compared here.
            scores -= np.vecdot(rows[part], rows[part])[:, None]
        nearest = np.partition(scores, -count - 1, axis=1)[:, -count - 1 :]
        out[part] = (nearest.sum(axis=1) - nearest.max(axis=1)) / count
    return out


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
