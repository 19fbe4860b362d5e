"""Sorting more rows than memory should hold: runs on the disk, merged a bucket at a time.

What is sorted are numbers of 64 bits that hold a row in their last bits and most of its urgency
before them. A run is sorted in memory and written down. Some of each run tell where to cut the
range of all numbers into buckets that fit into memory; a bucket is read from all runs, sorted, and
given.

Rows whose urgencies are alike in what the numbers hold always come into one bucket, where the
urgencies themselves are looked at. If they are too many for memory they are sorted like the whole,
with all the bits for what is left of their range.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Keys = NDArray[np.uint64]
Rows = NDArray[np.int64]
Rank = Callable[[Rows], Any]
"""Where rows stand among each other, of equal urgency."""
# Rows that are sorted in memory: 8 bytes each, and a few times that on the way.
IN_MEMORY = 1 << 22
# Of a run so many numbers tell how they are spread.
_TELLING = 4096


class Runs:
    """Sorted runs of numbers in a folder, and what they come to together."""

    def __init__(self, folder: Path, size: int = IN_MEMORY) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=folder, prefix="runs-"))
        self._size = size
        self._held: list[Keys] = []
        self._count = 0
        self._runs: list[Keys] = []

    def add(self, keys: Keys) -> None:
        """More numbers, in any order."""
        while len(keys):
            room = self._size - self._count
            self._held.append(keys[:room])
            self._count += len(keys[:room])
            keys = keys[room:]
            if self._count == self._size:
                self._write()

    def buckets(self, apart: int = 0) -> Iterator[list[Keys]]:
        """The numbers by rising ranges: of each range a sorted piece of every run.

        Numbers that differ in their last `apart` bits alone are in one bucket. All numbers of a
        bucket that is much larger than a run are such.
        """
        self._write()
        if not self._runs:
            return
        cuts = self._cuts(apart)
        begins = [0] * len(self._runs)
        for cut in [*cuts, None]:
            pieces = []
            for number, run in enumerate(self._runs):
                end = len(run) if cut is None else int(np.searchsorted(run, np.uint64(cut)))
                if end > begins[number]:
                    pieces.append(run[begins[number] : end])
                begins[number] = end
            if pieces:
                yield pieces

    def close(self) -> None:
        """Take the runs off the disk."""
        self._runs.clear()
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    def _cuts(self, apart: int) -> list[int]:
        step = max(1, self._size // _TELLING)
        some = np.sort(np.concatenate([run[::step] for run in self._runs]))
        # Half a run each, so that chance does not make one too large.
        every = max(1, self._size // (2 * step))
        chosen = {int(one) >> apart for one in some[every::every]}
        # With what comes next, so that one that is of many alike has nothing else in it.
        both = sorted({one << apart for one in chosen} | {(one + 1) << apart for one in chosen})
        return [cut for cut in both if cut < 1 << 64]

    def _write(self) -> None:
        if not self._count:
            return
        keys = np.concatenate(self._held)
        keys.sort()
        path = self._folder / str(len(self._runs))
        keys.tofile(path)
        self._runs.append(np.memmap(path, np.uint64, "r"))
        self._held, self._count = [], 0


def spread(folder: Path | None, rows: int, kind: Any) -> NDArray[Any]:
    """An empty array: in memory, or on the disk where there is a folder for it."""
    if folder is None or not rows:
        return np.empty(rows, kind)
    # The file has no name any more once it is mapped: it goes with the array.
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(rows * np.dtype(kind).itemsize)
        return np.memmap(file, kind, "r+", shape=(rows,))


@contextmanager
def scratch(beside: Path, rows: int) -> Iterator[Path | None]:
    """A folder beside a file that is to be made of so many rows; None where memory will do."""
    if rows <= IN_MEMORY:
        yield None
        return
    with tempfile.TemporaryDirectory(dir=beside.parent, prefix=f".{beside.stem}-sort-") as folder:
        yield Path(folder)


def by_falling(
    values: Numbers, rank: Rank | None, folder: Path, *, size: int = IN_MEMORY
) -> Iterator[Rows]:
    """Rows by falling value, some at a time; those of equal value by rank, or by their number."""

    def whole() -> Iterator[Rows]:
        for first in range(0, len(values), size):
            yield np.arange(first, min(first + size, len(values)))

    yield from _sorted(values, whole, rank, folder, size)


def _sorted(
    values: Numbers,
    rows: Callable[[], Iterator[Rows]],
    rank: Rank | None,
    folder: Path,
    size: int,
) -> Iterator[Rows]:
    """Of some rows, which `rows` gives in pieces; those of equal value in rising order."""
    most, least = -np.inf, np.inf
    for piece in rows():
        some = values[piece]
        most, least = max(most, float(some.max())), min(least, float(some.min()))
    if most == least:
        if rank is None:
            yield from rows()
        else:
            equal = np.concatenate(list(rows()))
            yield equal[np.argsort(rank(equal))]
        return
    bits = len(values).bit_length()
    mask = np.uint64((1 << bits) - 1)
    runs = Runs(folder, size)
    try:
        for piece in rows():
            runs.add(packed(values[piece], piece, bits, most, least))
        for pieces in runs.buckets(bits):
            if sum(map(len, pieces)) > 4 * size:
                yield from _sorted(values, _rows_of(pieces, mask, size), rank, folder, size)
                continue
            keys = np.concatenate(pieces)
            keys.sort()
            found = (keys & mask).view(np.int64)
            settle_alike(found, keys >> np.uint64(bits), values, rank)
            yield found
    finally:
        runs.close()


def _rows_of(pieces: list[Keys], mask: np.uint64, size: int) -> Callable[[], Iterator[Rows]]:
    def rows() -> Iterator[Rows]:
        for piece in pieces:
            for first in range(0, len(piece), size):
                yield (piece[first : first + size] & mask).view(np.int64)

    return rows


def settle_alike(rows: Rows, held: Keys, values: Numbers, rank: Rank | None) -> None:
    """Put rows right, in place, that are alike in what their numbers `held` of their values."""
    alike = np.zeros(len(rows), bool)
    np.equal(held[1:], held[:-1], out=alike[1:])
    alike[:-1] |= alike[1:]
    places = np.flatnonzero(alike)
    if len(places):
        some = rows[places]
        by = some if rank is None else rank(some)
        rows[places] = some[np.lexsort((by, -values[some]))]


def packed(values: Numbers, rows: NDArray[Any], bits: int, most: float, least: float) -> Keys:
    """A number for each row, the smaller the larger its value; the last `bits` are the row.

    >>> keys = packed(np.array([-1.0, 2.0, 0.5]), np.arange(3), 2, 2.0, -1.0)
    >>> [int(n) & 3 for n in np.sort(keys)]
    [1, 2, 0]
    """
    # Halves, since the whole of two large ones has no number.
    steps = float((1 << min(52, 64 - bits)) - 1)
    below = (0.5 * most - 0.5 * values) / (0.5 * most - 0.5 * least)
    return (below * steps).astype(np.uint64) << np.uint64(bits) | rows.astype(np.uint64)
