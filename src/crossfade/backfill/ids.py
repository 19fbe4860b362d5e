"""Ids of a gallery: whole numbers or strings, ten million of them in little memory.

Strings stay as Arrow holds them. What needs a number for each, an order at random or the search
for an id that is given twice, takes a hash of it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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

    def most_urgent_first(self, urgency: NDArray[np.float64]) -> Index:
        """Rows from the most urgent on; of equal urgency by id."""
        # Sorting numbers is several times faster than sorting rows by them: each number holds
        # most of an urgency and its row. The few that are alike in what it holds are looked at.
        bits = np.uint64(self.rows.bit_length())
        packed = _falling(urgency, bits)
        packed.sort()
        order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
        packed >>= bits
        alike = np.zeros(self.rows, bool)
        np.equal(packed[1:], packed[:-1], out=alike[1:])
        alike[:-1] |= alike[1:]
        del packed
        places = np.flatnonzero(alike)
        if len(places):
            rows = order[places]
            by_id = np.asarray(pc.rank(self.ordered(rows)))
            order[places] = rows[np.lexsort((by_id, -urgency[rows]))]
        return order

    def _twice(self) -> Any:
        keys = self.keys(slice(0, self.rows))
        keys.sort()
        twice = keys[1:][keys[1:] == keys[:-1]]
        if not len(twice):
            return None
        # Two strings may share a hash: these few are looked at themselves.
        rows = np.flatnonzero(np.isin(self.keys(slice(0, self.rows)), twice))
        found = self.ordered(rows).value_counts()
        most = found.field("counts").to_numpy().argmax()
        is_twice = found.field("counts")[most].as_py() > 1
        return found.field("values")[most].as_py() if is_twice else None


def _falling(values: NDArray[np.float64], bits: np.uint64) -> NDArray[np.uint64]:
    """A number for each row, the smaller the larger its value; the last `bits` are the row.

    A piece at a time, to hold no copies.

    >>> [int(n) & 3 for n in np.sort(_falling(np.array([-1.0, 2.0, 0.5]), np.uint64(2)))]
    [1, 2, 0]
    """
    out = np.arange(len(values), dtype=np.uint64)
    # Halves, since the whole of two large ones has no number.
    most, least = (0.5 * float(end) for end in (values.max(), values.min()))
    steps = float((1 << min(52, 64 - int(bits))) - 1)
    for first in range(0, len(values) if most > least else 0, _PIECE):
        here = slice(first, first + _PIECE)
        below = (most - 0.5 * values[here]) / (most - least)
        out[here] |= (below * steps).astype(np.uint64) << bits
    return out


def check_order(order: Values, gallery: Values, where: object = None) -> None:
    """Raise unless an order names every id of a gallery once, and no other.

    >>> check_order(np.array([2, 1]), np.array([1, 2]))
    >>> check_order(np.array([2, 3]), np.array([1, 2]))
    Traceback (most recent call last):
    crossfade.errors.BadInput: is the order of another gallery: ...
    """
    named, there = Ids(order, len(order), where).values, Ids(gallery, len(gallery)).values
    if named is None or there is None:
        raise BadInput("an order and a gallery need ids", where=where)
    if pa.types.is_integer(named.type) != pa.types.is_integer(there.type):
        raise BadInput(
            f"its ids are {named.type}, the gallery's {there.type}",
            where=where,
            step="order this gallery with crossfade plan --gallery",
        )
    there = there.cast(named.type)
    other = named.filter(pc.invert(pc.is_in(named, value_set=there)))
    missing = there.filter(pc.invert(pc.is_in(there, value_set=named)))
    if len(other) or len(missing):
        found = [
            f"{len(ids)} of {whose} {'is' if len(ids) == 1 else 'are'} {what} ({ids[0]})"
            for ids, whose, what in (
                (other, "its ids", "not there"),
                (missing, "the gallery's", "missing"),
            )
            if len(ids)
        ]
        raise BadInput(
            f"is the order of another gallery: {', '.join(found)}",
            where=where,
            step="order this gallery with crossfade plan --gallery",
        )


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
