"""How many scores of a row are below each of some of them.

A few are compared with the row one by one. For many, the range between the lowest and the highest
of them is cut into slices: the slice of a score grows with it, so what lies in a lower slice is
lower, and only slices that hold a score asked for are looked at again. Or the row is sorted, which
numpy does several numbers at a time on some machines, and four times as slowly on others: which of
the two is the faster one is found out by the first rows. All are exact, and equal scores are not
below each other. `compiled_counting` does the same in one pass, with numba.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
Index = NDArray[np.int64]
Count = Callable[[Float, Float, Index, Index], None]
"""`count(scores, asked, bounds, below)`: of row i (rows, n) the scores asked for are
`asked[bounds[i]:bounds[i + 1]]`, ascending; fills `below` beside `asked`. A row may hold −∞ where
an item is left out, which is below everything; all else is finite. The scores of a row may be left
in another order."""

# One comparison of a row with one score costs about a thirtieth of slicing it.
FEW = 16
# Slices of a row: this many for each score asked for, and never more than the row has scores.
SLICES_EACH, LEAST_SLICES = 16, 4096
# No narrower than this, so that what divides by it stays a float32.
NARROWEST = 1e-30
# Scores looked at together: they and their slices stay within a core's own cache.
_TILE = 1 << 16
# Tiles that each of the two ways is tried on.
_TRIES = 2


def count_below(scores: Float, asked: Float, bounds: Index, below: Index) -> None:
    """As `Count` says.

    >>> scores = np.array([[1, 3, 2, 3], [0, 0, 0, 5]], dtype=np.float32)
    >>> below = np.empty(3, np.int64)
    >>> count_below(scores, np.array([2, 3, 0], np.float32), np.array([0, 2, 3]), below)
    >>> below
    array([1, 2, 0])
    """
    rows, n = scores.shape
    step = max(1, _TILE // n)
    scratch: _Scratch | None = None
    best, tried = [np.inf] * len(WAYS), 0
    for first in range(0, rows, step):
        last = min(first + step, rows)
        here = slice(bounds[first], bounds[last])
        some = asked[here], bounds[first : last + 1] - bounds[first], below[here]
        if len(some[0]) <= FEW * (last - first):
            _one_by_one(scores[first:last], *some)
        else:
            scratch = _Scratch(min(n, _TILE) * min(step, rows)) if scratch is None else scratch
            way = tried % len(WAYS) if tried < _TRIES * len(WAYS) else best.index(min(best))
            begin = time.perf_counter()
            WAYS[way](scores[first:last], *some, scratch)
            best[way] = min(best[way], time.perf_counter() - begin)
            tried += 1


class _Scratch:
    """What is worked out for a tile of scores, in memory that is touched once and kept."""

    def __init__(self, size: int) -> None:
        self.found = np.empty(size, np.float32)
        self.narrow, self.wide = np.empty(size, np.int32), np.empty(size, np.intp)
        self.inside = np.empty(size, bool)


def _one_by_one(scores: Float, asked: Float, bounds: Index, below: Index) -> None:
    mask = np.empty(scores.shape[1], bool)
    ends = bounds.tolist()
    for row, some in enumerate(scores):
        for i in range(ends[row], ends[row + 1]):
            below[i] = np.count_nonzero(np.less(some, asked[i], out=mask))


def _by_sorting(scores: Float, asked: Float, bounds: Index, below: Index, _: _Scratch) -> None:
    scores.sort(axis=1)
    ends = bounds.tolist()
    for row, some in enumerate(scores):
        here = slice(ends[row], ends[row + 1])
        below[here] = some.searchsorted(asked[here])


def _by_slices(scores: Float, asked: Float, bounds: Index, below: Index, scratch: _Scratch) -> None:
    rows, n = scores.shape
    counts = np.diff(bounds)
    row, some = np.repeat(np.arange(rows), counts), np.flatnonzero(counts)
    cut = min(max(LEAST_SLICES, SLICES_EACH * int(counts.max())), n)
    # In a row where nothing is asked for, everything is below.
    low, width = np.full(rows, np.inf, np.float32), np.ones(rows)
    low[some] = asked[bounds[some]]
    width[some] = asked[bounds[some + 1] - 1].astype(np.float64) - low[some]
    scale = (cut / np.maximum(width, NARROWEST)).astype(np.float32)
    # Of each row a slice for what is below, then `cut`, then one for what is above.
    offset = np.arange(1, rows * (cut + 2), cut + 2, dtype=np.float32)

    def slices(x: Float, of: tuple[Float, Float, Float], out: Float) -> Float:
        with np.errstate(over="ignore"):
            np.subtract(x, of[0], out=out)
            np.multiply(out, of[1], out=out)
        np.clip(out, -1, cut, out=out)
        return np.add(out, of[2], out=out)

    mine = (low[row], scale[row], offset[row])
    at = slices(asked, mine, np.empty_like(asked)).astype(np.intp)
    looked_at = np.zeros(rows * (cut + 2), bool)
    looked_at[at] = True
    held = np.zeros(len(looked_at), np.intp)
    near: list[Float] = []
    of_rows = (low[:, None], scale[:, None], offset[:, None])
    tile = min(n, _TILE)
    for first in range(0, n, tile):
        part = scores[:, first : first + tile]
        here = slice(part.size)
        slices(part, of_rows, scratch.found[here].reshape(part.shape))
        # By way of int32: to int64 there is no conversion of several numbers at a time.
        np.copyto(scratch.narrow[here], scratch.found[here], casting="unsafe")
        np.copyto(scratch.wide[here], scratch.narrow[here])
        held += np.bincount(scratch.wide[here], minlength=len(held))
        np.take(looked_at, scratch.wide[here], out=scratch.inside[here], mode="clip")
        near.append(part.reshape(-1)[np.flatnonzero(scratch.inside[here])])
    within = near[0] if len(near) == 1 else np.concatenate(near)
    # The scores asked for ascend in each row, and so do their slices over all rows.
    fresh = np.ones(len(at), bool)
    fresh[1:] = at[1:] != at[:-1]
    nth = np.cumsum(fresh) - 1
    in_slice = held[at[fresh]]
    near_ends = np.cumsum(in_slice)
    begin = 0
    for i in some.tolist():
        here = slice(bounds[i], bounds[i + 1])
        end = int(near_ends[nth[here.stop - 1]])
        ordered = within[begin:end]
        ordered.sort()
        below[here] = ordered.searchsorted(asked[here]) + begin
        begin = end
    below -= (near_ends - in_slice)[nth]
    below += (np.cumsum(held) - held)[at] - row * n


WAYS = (_by_slices, _by_sorting)
