"""Does row i of old belong to row i of new? Asked of a sample, before anything is learned from it.

Where the rows are the same items, what is alike to one model is alike to the other: in a sample the
similarities among old vectors and those among new ones agree better than after one side has been
shuffled. That is Mantel's test, here on inner products about the mean, so that what it compares
with chance is ‖Σ old newᵀ‖², the very thing Procrustes and ridge learn from. No map is fitted, and
fifty pairs will do, whatever the dimensions.

A row too many or too few moves one side against the other. Files are often sorted by class, where a
neighbour's vector fits almost as well as one's own, so a shift is looked for by itself: does a row
fit its place better than the rows before and after it would, and if not, would it do so after all
rows were moved by one or more? That is asked of the whole sample, and of each of the stretches it
is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
MOST = 512
"""Rows looked at; of more pairs, in stretches spread evenly over them."""
STRETCH = 64
SHIFTS = tuple(k for far in range(1, 9) for k in (far, -far))
SHUFFLES = 100
# In standard deviations. The pairs of twenty-two real sets have 11 and more with 50 rows, 53 with
# 200; shuffled, less than 4, and up to 8 in clusters of two or three dimensions.
BELONGING = 6.0
# In standard errors: by so much rows fit their places better than the next best would. Those pairs
# have 4 and more with 50 rows, 10 with 200, and 6 in a file sorted by classes that the models have
# collapsed; shuffled, less than 2.
SETTLED = 3.0
# Of a single stretch, of which there are eight to be wrong about.
SHIFTED = 5.0
LOOSE = 2.0


@dataclass(frozen=True)
class Matching:
    """Whether rows belong together, and where they do not."""

    belongs: bool | None
    """None where one side's rows are all the same, so that nothing can be told."""
    score: float | None = None
    """Where they do not: standard deviations by which they agree better than shuffled rows."""
    shift: int = 0
    """Row i of new matches row i + `shift` of old, everywhere or in the rows `where`."""
    where: range | None = None
    loose: tuple[range, ...] = ()
    """Rows that match no better than those about them, among others that do."""

    @property
    def how(self) -> str:
        """In what way they do not belong together."""
        if self.shift:
            return f"row i of 'new' matches row i{self.shift:+d} of 'old'"
        return "they agree no better than shuffled ones"


def stretches(rows: int) -> list[range]:
    """The rows to look at: all of them, or eight stretches of consecutive ones.

    >>> stretches(130), len(stretches(10_000)), stretches(10_000)[-1]
    ([range(0, 65), range(65, 130)], 8, range(9936, 10000))
    """
    if rows <= MOST:
        parts = np.array_split(np.arange(rows), max(1, rows // STRETCH))
        return [range(int(part[0]), int(part[-1]) + 1) for part in parts]
    starts = np.linspace(0, rows - STRETCH, MOST // STRETCH).astype(int)
    return [range(int(first), int(first) + STRETCH) for first in starts]


def match(old: Float, new: Float, looked_at: Sequence[range]) -> Matching:
    """How well the rows match; `old` and `new` are those of the stretches, one after the other.

    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(200, 8)).astype("f4")
    >>> old = new[:, :4]
    >>> match(old, new, stretches(200)).belongs, match(old[::-1], new, stretches(200)).belongs
    (True, False)
    >>> match(np.roll(old, 3, axis=0), new, stretches(200)).shift
    3
    """
    a, b = _similarities(old), _similarities(new)
    if a is None or b is None:
        return Matching(None)
    ends = np.cumsum([0, *map(len, looked_at)]).tolist()
    places = [range(first, last) for first, last in pairwise(ends)]
    if _lead(a, b, places) < SETTLED:
        leads = {k: _lead(a, b, places, k) for k in SHIFTS}
        best = max(leads, key=lambda k: leads[k])
        if leads[best] >= SETTLED:
            return Matching(False, shift=best)
        # Where rows come in classes and the models know no more than those, a row fits no better
        # than its neighbours, and agrees with its own side for all that.
        score = _score(a, b)
        if score < BELONGING:
            return Matching(False, score)
    fits = _fits(a, b)
    for rows, stretch in zip(looked_at, places, strict=True):
        gains = {k: _gain(*fits, [stretch], k) for k in SHIFTS}
        best = max(gains, key=lambda k: gains[k])
        if gains[best] >= SHIFTED:
            return Matching(False, shift=best, where=rows)
    loose = [rows for rows, p in zip(looked_at, places, strict=True) if _own(fits[0], p) < LOOSE]
    return Matching(True, loose=tuple(loose))


def _similarities(x: Float) -> Float | None:
    """Inner products about the mean, each row's own left out; None if all rows are the same."""
    x = x / max(float(np.sqrt((x.astype(np.float64) ** 2).sum(axis=1).mean())), 1e-30)
    x = x - x.mean(axis=0)
    if float((x**2).sum(axis=1).mean()) < 1e-10:
        return None
    out = x @ x.T
    np.fill_diagonal(out, 0.0)
    return np.asarray(out, np.float32)


def _score(a: Float, b: Float) -> float:
    """Standard deviations by which the two sides agree better than shuffled ones."""
    rng = np.random.default_rng(0)
    shuffled = np.empty(SHUFFLES)
    for i in range(SHUFFLES):
        order = rng.permutation(len(a))
        shuffled[i] = np.vdot(a, b[order][:, order])
    return float((np.vdot(a, b) - shuffled.mean()) / max(float(shuffled.std()), 1e-30))


def _fits(a: Float, b: Float) -> tuple[Float, Float]:
    """How well each old row fits in the place of each new one, going by all other rows.

    And what the two rows themselves add to it, which speaks for neither.
    """
    return a @ b, a * b


def _lead(a: Float, b: Float, places: Sequence[range], shift: int = 0) -> float:
    """Standard errors by which rows fit their places better than the next best of those about them.

    With `shift`, after old was moved by so many rows.
    """
    kept = [range(p.start + max(0, -shift), p.stop - max(0, shift)) for p in places]
    rows = np.concatenate([np.arange(p.start, p.stop) for p in kept])
    fits = _fits(a[np.ix_(rows + shift, rows + shift)], b[np.ix_(rows, rows)])
    ends = np.cumsum([0, *map(len, kept)]).tolist()
    moved = [range(first, last) for first, last in pairwise(ends)]
    return -max(_gain(*fits, moved, k) for k in SHIFTS)


def _gain(fits: Float, both: Float, places: Sequence[range], k: int) -> float:
    """Standard errors by which the row k further fits in the place of a row better than its own."""
    rows = np.concatenate([np.arange(p.start + max(0, -k), p.stop - max(0, k)) for p in places])
    return _errors(fits[rows + k, rows] - fits[rows, rows] + both[rows + k, rows])


def _own(fits: Float, stretch: range) -> float:
    """Standard errors by which rows of a stretch fit better in their own place than in others'."""
    block = fits[stretch.start : stretch.stop, stretch.start : stretch.stop]
    own = np.diag(block)
    others = (block.sum(axis=0) - own) / (len(block) - 1)
    return _errors(own - others, still=np.inf)


def _errors(x: NDArray[np.floating], still: float = 0.0) -> float:
    """The mean in standard errors; `still` where nothing varies."""
    spread = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    return float(x.mean()) / (spread / np.sqrt(len(x))) if spread > 0 else still
