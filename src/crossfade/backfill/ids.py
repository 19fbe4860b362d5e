"""Ids of a gallery: whole numbers or strings, ten million of them in little memory.

Strings stay as Arrow holds them. What needs a number for each, an order at random or the search
for an id that is given twice, takes a hash of it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.backfill.external import (
    IN_MEMORY,
    Runs,
    by_falling,
    packed,
    settle_alike,
    spread,
)
from crossfade.backfill.items import Index
from crossfade.errors import BadInput, MissingExtra

Values: TypeAlias = pa.Array | NDArray[Any]
_PIECE = 1 << 20


class Ids:
    """One id per row; by default the number of the row.

    >>> ids = Ids(pa.array(["b", "a", "c"]), 3)
    >>> ids.ordered(np.array([1, 0, 2])).to_pylist()
    ['a', 'b', 'c']
    """

    def __init__(
        self,
        values: pa.Array | pa.ChunkedArray | NDArray[Any] | None,
        rows: int,
        where: object = None,
    ) -> None:
        self.rows = rows
        self.values = None if values is None else _column(values, where)
        if self.values is None:
            return
        if len(self.values) != rows:
            raise BadInput(f"there are {len(self.values)} ids for {rows} rows", where=where)
        if self.values.null_count:
            row = int(np.flatnonzero(np.asarray(self.values.is_null()))[0])
            raise BadInput(f"row {row} has no id", where=where, step="give every item its own id")
        twice = self._twice()
        if twice is not None:
            raise BadInput(
                f"an id is given twice ({twice!r})", where=where, step="give every item its own id"
            )

    def keys(self, rows: slice) -> Index:
        """A number for each: the id itself, or a hash of it."""
        if self.values is None:
            return np.arange(*rows.indices(self.rows))
        some = self.values[rows]
        if pa.types.is_integer(some.type):
            return np.asarray(some).astype(np.int64)
        return _hashes(some)

    def ordered(self, rows: Index) -> pa.Array:
        """Ids of these rows."""
        return pa.array(rows) if self.values is None else self.values.take(pa.array(rows))

    def most_urgent_first(self, urgency: NDArray[np.float64], folder: Path | None = None) -> Index:
        """Rows from the most urgent on; of equal urgency by id.

        With a folder, what is as large as the gallery lies there.
        """
        rank = None if self.values is None else self._rank
        if folder is not None:
            out = spread(folder, self.rows, np.int64)
            done = 0
            for piece in by_falling(urgency, rank, folder):
                out[done : done + len(piece)] = piece
                done += len(piece)
            return out
        # Sorting numbers is several times faster than sorting rows by them
        # (benchmarks/gallery_order.py): each number holds most of an urgency and its row. The few
        # that are alike in what it holds are looked at.
        bits = self.rows.bit_length()
        keys = _falling(urgency, bits)
        keys.sort()
        order = (keys & np.uint64((1 << bits) - 1)).view(np.int64)
        keys >>= np.uint64(bits)
        settle_alike(order, keys, urgency, rank)
        return order

    def _rank(self, rows: Index) -> Any:
        return np.asarray(pc.rank(self.ordered(rows)))

    def _twice(self) -> Any:
        if self.rows <= IN_MEMORY:
            keys = self.keys(slice(0, self.rows))
            keys.sort()
            twice = keys[1:][keys[1:] == keys[:-1]]
        else:
            with tempfile.TemporaryDirectory() as folder:
                twice = self._twice_on_disk(Path(folder))
        if not len(twice):
            return None
        # Two strings may share a hash: these few are looked at themselves.
        rows = np.concatenate(
            [
                first + np.flatnonzero(np.isin(self.keys(slice(first, first + _PIECE)), twice))
                for first in range(0, self.rows, _PIECE)
            ]
        )
        found = self.ordered(rows).value_counts()
        most = found.field("counts").to_numpy().argmax()
        is_twice = found.field("counts")[most].as_py() > 1
        return found.field("values")[most].as_py() if is_twice else None

    def _twice_on_disk(self, folder: Path) -> Index:
        """Keys that are there more than once; the first so many of them."""
        runs = Runs(folder)
        twice: list[NDArray[np.uint64]] = []
        for first in range(0, self.rows, _PIECE):
            runs.add(self.keys(slice(first, first + _PIECE)).view(np.uint64))
        for pieces in runs.buckets():
            keys = np.sort(np.concatenate(pieces))
            twice.append(keys[1:][keys[1:] == keys[:-1]])
            if sum(map(len, twice)) > _PIECE:
                break
        runs.close()
        return np.concatenate(twice).view(np.int64) if twice else np.empty(0, np.int64)


def _falling(values: NDArray[np.float64], bits: int) -> NDArray[np.uint64]:
    """A number for each row, the smaller the larger its value; the last `bits` are the row.

    A piece at a time, to hold no copies.

    >>> [int(n) & 3 for n in np.sort(_falling(np.array([-1.0, 2.0, 0.5]), 2))]
    [1, 2, 0]
    """
    most, least = float(values.max()), float(values.min())
    out = np.arange(len(values), dtype=np.uint64)
    for first in range(0, len(values) if most > least else 0, _PIECE):
        here = slice(first, first + _PIECE)
        out[here] = packed(values[here], out[here], bits, most, least)
    return out


def _column(values: Any, where: object) -> pa.Array:
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except pa.ArrowException:
        raise BadInput("ids mix types", where=where, step="give whole numbers or strings") from None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise BadInput(f"ids are {kind}", where=where, step="give whole numbers or strings")
    return column


def _hashes(column: pa.Array) -> Index:
    try:
        from crossfade.backfill.rows import hash_strings
    except ImportError as error:
        raise MissingExtra("numba", extra="plan", need="an order of ids") from error
    wide = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, wide)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    out = np.empty(len(column), np.uint64)
    hash_strings(starts, letters, out)
    return out.view(np.int64)
