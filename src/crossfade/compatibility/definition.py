"""Definition 3.1 itself: the share of pairs of items whose inequality holds.

For items i, j of one class the new representation of i shall be no farther from j than the old one
is, for items of different classes no nearer. All pairs but i = j are looked at, a chunk of queries
at a time, or a sample of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.retrieval.ranking import unit_rows
from crossfade.retrieval.relevance import NONE, SameClass

Float = NDArray[np.float32]
Sides = tuple[Float, Float]
_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True)
class Share:
    """`holds` of `pairs`; the 95 % interval (Wilson's) where they are a sample."""

    holds: int
    pairs: int
    sampled: bool = False

    def record(self) -> dict[str, Any]:
        """For JSON: the share in percent, null where there is no such pair.

        >>> Share(3, 4).record()
        {'share': 75.0, 'pairs': 4}
        """
        share = 100.0 * self.holds / self.pairs if self.pairs else None
        out: dict[str, Any] = {"share": share, "pairs": self.pairs}
        return out | {"ci95": self.interval()} if self.sampled else out

    def interval(self) -> tuple[float, float]:
        """
        >>> low, high = Share(50, 100, sampled=True).interval()
        >>> round(low, 1), round(high, 1)
        (40.4, 59.6)
        """
        z, n = 1.959964, self.pairs
        if not n:
            return 0.0, 100.0
        p = self.holds / n
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
        return 100.0 * (middle - half), 100.0 * (middle + half)


def check_definition(
    case: Sides, old: Sides, relevance: SameClass, distance: Distance = "cosine"
) -> dict[str, Share]:
    """Exact shares over all pairs; `case` and `old` are each (queries, gallery).

    >>> x = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    >>> better = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    >>> shares = check_definition((better, x), (x, x), SameClass.among(np.array([0, 0, 1])))
    >>> shares["same_class"].record(), shares["different_class"].record()
    ({'share': 100.0, 'pairs': 2}, {'share': 100.0, 'pairs': 4})
    """
    case, old = _prepared(case, distance), _prepared(old, distance)
    rows = max(1, _CHUNK_BYTES // (4 * len(old[1])))
    holds, pairs = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, len(old[0]), rows):
        part = slice(first, min(first + rows, len(old[0])))
        closeness = _scores(case, part, distance) - _scores(old, part, distance)
        same = relevance.labels[part, None] == relevance.gallery_labels[None, :]
        known = (relevance.labels[part, None] != NONE) & (relevance.gallery_labels != NONE)[None]
        if relevance.own is not None:
            own = relevance.own[part]
            there = np.flatnonzero(own != NONE)
            known[there, own[there]] = False
        for at, (mask, good) in enumerate(
            ((same & known, closeness >= 0), (~same & known, closeness <= 0))
        ):
            pairs[at] += np.count_nonzero(mask)
            holds[at] += np.count_nonzero(mask & good)
    return {
        name: Share(int(h), int(p))
        for name, h, p in zip(("same_class", "different_class"), holds, pairs, strict=True)
    }


def sample_definition(
    case: Sides,
    old: Sides,
    relevance: SameClass,
    distance: Distance = "cosine",
    *,
    pairs: int = 100_000,
    seed: int = 0,
) -> dict[str, Share]:
    """The same shares from so many random pairs of each kind."""
    rng = np.random.default_rng(seed)
    case, old = _prepared(case, distance), _prepared(old, distance)
    out = {}
    for name, wanted in (("same_class", True), ("different_class", False)):
        i, j = _draw(relevance, pairs, wanted, rng)
        closeness = _pair_scores(case, i, j, distance) - _pair_scores(old, i, j, distance)
        good = closeness >= 0 if wanted else closeness <= 0
        out[name] = Share(int(np.count_nonzero(good)), len(i), sampled=True)
    return out


def _draw(
    relevance: SameClass, pairs: int, same: bool, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random pairs of one kind: those of the other kind are drawn and thrown away."""
    counts = relevance.counts()
    known = int(np.count_nonzero(relevance.gallery_labels != NONE))
    if same:
        weights = counts.astype(np.float64)
    else:
        others = known - counts - (relevance.own is not None)
        weights = np.where(relevance.labels != NONE, others, 0).astype(np.float64)
    empty = np.empty(0, np.int64)
    if weights.sum() <= 0:
        return empty, empty
    i = rng.choice(len(weights), size=pairs, p=weights / weights.sum())
    if same:
        return i, relevance.member(i, rng.integers(0, counts[i]))
    candidates = np.flatnonzero(relevance.gallery_labels != NONE)
    j = candidates[rng.integers(0, known, size=pairs)]
    while (again := relevance.labels[i] == relevance.gallery_labels[j]).any():
        j[again] = candidates[rng.integers(0, known, size=int(again.sum()))]
    return i, j


def _prepared(sides: Sides, distance: Distance) -> Sides:
    return (unit_rows(sides[0]), unit_rows(sides[1])) if distance == "cosine" else sides


def _scores(sides: Sides, rows: slice, distance: Distance) -> Float:
    """Closeness of some queries to the gallery, comparable between representations."""
    query, gallery = sides[0][rows], sides[1]
    scores = query @ gallery.T
    if distance == "l2":
        scores *= 2
        scores -= np.vecdot(query, query)[:, None]
        scores -= np.vecdot(gallery, gallery)[None, :]
    return scores


def _pair_scores(
    sides: Sides, i: NDArray[np.int64], j: NDArray[np.int64], distance: Distance
) -> Float:
    query, gallery = sides[0][i], sides[1][j]
    if distance == "l2":
        gap = query - gallery
        return np.asarray(-np.vecdot(gap, gap))
    return np.asarray(np.vecdot(query, gallery))
