"""What is done to every row of a gallery, compiled: ten million rows at the speed of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from crossfade.threads import in_parts

Array = NDArray[Any]
# 2 to the power by which the exponents of float16 and float32 are offset differently.
_OFFSET = np.float32(2.0**112)
_BEYOND = np.float32(65536.0)
# Wide rows that a core keeps close by until they have been looked at.
_CLOSE_BYTES = 1 << 20


def widened(block: Array, room: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """float16 as float32, faster than numpy does it; what is not finite becomes NaN.

    Given `room` for as many rows or more, it is used: fresh memory takes as long as the work.

    >>> widened(np.array([[1.5, -2.0], [np.inf, 6e-8]], np.float16)).tolist()
    [[1.5, -2.0], [nan, 5.960464477539063e-08]]
    """
    if block.dtype != np.float16:
        return np.ascontiguousarray(block, np.float32)
    out = np.empty(block.shape, np.float32) if room is None else room[: len(block)]
    narrow, bits = np.ascontiguousarray(block).view(np.uint16), out.view(np.uint32)
    in_parts(len(block), lambda a, b: _widen(narrow[a:b], bits[a:b], out[a:b]))
    return out


def wide_parts(block: Array) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """The rows as float32, of float16 a few at a time; each part is there until the next is taken.

    Rows that are used once are widened where they are used: written out and read back whole, they
    would take as long as reading them from the disk.

    >>> [(rows, x.tolist()) for rows, x in wide_parts(np.array([[1.5], [2.0]], np.float16))]
    [(slice(0, 2, None), [[1.5], [2.0]])]
    """
    if block.dtype != np.float16:
        yield slice(0, len(block)), np.ascontiguousarray(block, np.float32)
        return
    step = max(1, _CLOSE_BYTES // (4 * max(1, block.shape[1])))
    out = np.empty((min(step, len(block)), block.shape[1]), np.float32)
    narrow = np.ascontiguousarray(block).view(np.uint16)
    for first in range(0, len(block), step):
        some = narrow[first : first + step]
        here = out[: len(some)]
        _widen(some, here.view(np.uint32), here)
        yield slice(first, first + len(some)), here


@njit(cache=True, nogil=True)
def _widen(narrow: Array, bits: Array, out: Array) -> None:
    # Two loops of plain arithmetic for each row, which the compiler makes vectors of.
    for row in range(narrow.shape[0]):
        for column in range(narrow.shape[1]):
            half = np.uint32(narrow[row, column])
            bits[row, column] = ((half & 0x8000) << 16) | ((half & 0x7FFF) << 13)
        for column in range(narrow.shape[1]):
            value = out[row, column] * _OFFSET
            out[row, column] = value if abs(value) < _BEYOND else np.float32(np.nan)


@njit(cache=True, nogil=True)
def add_by_code(x: Array, codes: Array, sums: Array) -> None:
    """Add each row of `x` to the row of `sums` its code names; a negative code names none."""
    for row in range(len(codes)):
        if codes[row] >= 0:
            total, some = sums[codes[row]], x[row]
            for column in range(len(some)):
                total[column] += some[column]


# Sums may be made in any order here: that of a row is the same however rows are batched. They are
# of float64, which leaves few ties among ten million rows.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_gaps(x: Array, means: Array, codes: Array, out: Array) -> None:
    """‖x − mean‖² of each row and the mean its code names."""
    for row in range(len(codes)):
        some, mean = x[row], means[codes[row]]
        total = 0.0
        for column in range(len(some)):
            gap = np.float64(some[column] - mean[column])
            total += gap * gap
        out[row] = total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def cosines(x: Array, means: Array, codes: Array, out: Array) -> None:
    """Of each row and the mean its code names; 0 where one of them is 0."""
    for row in range(len(codes)):
        some, mean = x[row], means[codes[row]]
        product, own, other = 0.0, 0.0, 0.0
        for column in range(len(some)):
            a, b = np.float64(some[column]), np.float64(mean[column])
            product += a * b
            own += a * a
            other += b * b
        lengths = np.sqrt(own) * np.sqrt(other)
        out[row] = product / lengths if lengths > 0 else 0.0


@njit(cache=True, nogil=True)
def hash_strings(offsets: Array, data: Array, out: Array) -> None:
    """FNV-1a of the bytes between consecutive offsets."""
    for row in range(len(out)):
        value = np.uint64(0xCBF29CE484222325)
        for place in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
        out[row] = value
