"""`counting` in one pass, compiled: each score goes straight to its place among those asked for.

Where a slice holds none of the scores asked for, its place is known from the slice alone; else the
few in the slice are walked past.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from crossfade.retrieval.counting import LEAST_SLICES, NARROWEST, SLICES_EACH

Array = NDArray[Any]
# Slices are found for this many scores at a time, several in one instruction.
_TILE = 4096
_ONE = np.uint32(1)


@njit(cache=True, nogil=True)
def count_below(scores: Array, asked: Array, bounds: Array, below: Array) -> None:
    """As `counting.Count` says."""
    rows, n = scores.shape
    most = 0
    for row in range(rows):
        most = max(most, bounds[row + 1] - bounds[row])
    cut = min(max(LEAST_SLICES, SLICES_EACH * most), n)
    # Unsigned: a place that cannot be negative is looked up without asking whether it is.
    slices = np.empty(_TILE, np.uint32)
    starts = np.empty(cut + 2, np.uint32)
    # One more, which no score reaches, so that a walk need not watch for the end.
    steps = np.empty(most + 1, np.float32)
    # Four of each: neighbours of one place do not wait for each other.
    standing = np.empty((4, most + 1), np.int32)
    zero, top = np.float32(0), np.float32(cut)
    for row in range(rows):
        first = bounds[row]
        count = bounds[row + 1] - first
        if count == 0:
            continue
        steps[:count] = asked[first : first + count]
        steps[count] = np.inf
        low = steps[0]
        width = np.float64(steps[count - 1]) - np.float64(low)
        scale = np.float32(cut / max(width, NARROWEST))
        starts[:] = 0
        for i in range(count):
            value = (steps[i] - low) * scale
            value = value if value < top else top
            starts[np.uint32(value) + _ONE] += _ONE
        for i in range(cut + 1):
            starts[i + 1] += starts[i]
        standing[:] = 0
        for begin in range(0, n, _TILE):
            some = scores[row, begin : min(begin + _TILE, n)]
            for j in range(len(some)):
                value = (some[j] - low) * scale
                value = value if value > zero else zero
                value = value if value < top else top
                slices[j] = np.uint32(value)
            for j in range(len(some)):
                score = some[j]
                place = starts[slices[j]]
                while steps[place] <= score:
                    place += _ONE
                standing[j & 3, place] += 1
        total = 0
        for i in range(count):
            total += standing[0, i] + standing[1, i] + standing[2, i] + standing[3, i]
            below[first + i] = total
