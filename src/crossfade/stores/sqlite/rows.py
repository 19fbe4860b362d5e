"""Rows of a table as the contract wants them: columns, vectors, tokens, filters.

The token of a row has two halves. One is a hash of what the application has in it. The other is the
moment of the database it was read at (`Database.moment`): as long as that stands nobody else has
committed anything, so that no row needs to be looked at again.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files.arrow import to_arrow
from crossfade.sketch import bit_hashes
from crossfade.stores.contract import TOKEN, Id, Where
from crossfade.stores.names import Range, check_where
from crossfade.stores.sqlite.connection import Connection
from crossfade.stores.sqlite.schema import Schema, quoted
from crossfade.stores.sqlite.side import Side

MARKS = np.dtype([("hash", "<i8"), ("moment", "<i8")])
_NOTHING = 0
_ARROW = (
    (("INT", "BOOL"), pa.int64()),
    (("CHAR", "TEXT", "CLOB"), pa.string()),
    (("REAL", "FLOA", "DOUB"), pa.float64()),
)


@dataclass(frozen=True)
class Seen:
    """A table and what is added to it, seen by one connection at one moment."""

    connection: Connection
    schema: Schema
    side: Side
    name: str
    moment: int = _NOTHING

    @property
    def id(self) -> str:
        """The id inside a statement."""
        return f"t.{quoted(self.schema.id)}"

    @property
    def table(self) -> str:
        return f"{quoted(self.schema.table)} AS t"

    def count(self) -> int:
        """How many rows there are."""
        found = self.connection.execute(
            f"SELECT count(*) FROM {quoted(self.schema.table)}"  # noqa: S608
        )
        return int(found.fetchone()[0])

    def text_ids(self) -> bool:
        """Whether ids are text, by their declaration or by the first of them."""
        told = self.schema.text_ids
        if told is None:
            found = self.connection.execute(
                f"SELECT typeof({self.id}) FROM {self.table} LIMIT 1"  # noqa: S608
            ).fetchone()
            told = found is not None and found[0] == "text"
        return told

    def ordered_id(self) -> str:
        """The id as rows are ordered and compared by it."""
        return f"{self.id} COLLATE BINARY" if self.text_ids() else self.id

    def lacking(self, column: str) -> tuple[str, str]:
        """A join and a condition for rows that have nothing in an added column."""
        self.side.column(column, self.name)
        return self.side.joins([column], self.id), f"{self.side.named(column)} IS NULL"

    def ids(self, missing: str | None = None) -> list[Id]:
        """All ids in order, or those of rows that lack an added column."""
        join, kept = ("", "TRUE") if missing is None else self.lacking(missing)
        found = self.connection.execute(
            f"SELECT {self.id} FROM {self.table}{join} WHERE {kept}"  # noqa: S608
        )
        return self._checked(sorted(key for (key,) in found))

    def after(
        self, after: Id | None, size: int, columns: Sequence[str], missing: str | None
    ) -> pa.RecordBatch:
        """The rows that come next in order of id; of an ordinary table."""
        key = self.ordered_id()
        terms, given = ["TRUE"], []
        if after is not None:
            terms, given = [f"{key} > ?"], [after]
        needed = list(columns)
        if missing is not None:
            terms.append(self.lacking(missing)[1])
            needed.append(missing)
        tail = f"WHERE {' AND '.join(terms)} ORDER BY {key} LIMIT ?"
        rows = self.connection.execute(self._select(columns, tail, joined=needed), (*given, size))
        return self._batch(rows.fetchall(), columns)

    def of(
        self, ids: Sequence[Id], columns: Sequence[str], missing: str | None = None
    ) -> pa.RecordBatch:
        """The rows of these ids that are there, in the order given."""
        tail, needed = f"WHERE {self.id} = ?", list(columns)
        if missing is not None:
            tail += f" AND {self.lacking(missing)[1]}"
            needed.append(missing)
        asked = self._select(columns, tail, joined=needed)
        rows = self.connection.executemany(asked, [(key,) for key in ids])
        return self._batch(rows.fetchall(), columns)

    def hashes(self, ids: Sequence[Id]) -> dict[Id, int]:
        """What the rows that are there hash to, by id."""
        asked = self._select([self.schema.id], f"WHERE {self.id} = ?", joined=[])
        rows = self.connection.executemany(asked, [(key,) for key in ids]).fetchall()
        hashed = _hashes(rows, self._vector_at).tolist()
        return dict(zip((row[0] for row in rows), hashed, strict=True))

    def there(self, ids: Sequence[Id]) -> set[Id]:
        """Those of these ids that have a row."""
        asked = f"SELECT {self.id} FROM {self.table} WHERE {self.id} = ?"  # noqa: S608
        return {key for (key,) in self.connection.executemany(asked, [(key,) for key in ids])}

    def _select(self, columns: Sequence[str], tail: str, *, joined: Sequence[str]) -> str:
        """The id, all that a row's hash is made of, then added columns, in this order."""
        own = [name for name in self.schema.names if name != self.schema.id]
        added = [name for name in columns if name in self.side.columns]
        for name in columns:
            if name not in self.schema.names and name not in added:
                raise BadInput(f"has no column {name!r}", where=self.name)
        joins = self.side.joins([name for name in joined if name in self.side.columns], self.id)
        wanted = [self.id, *(f"t.{quoted(name)}" for name in self._read(own, columns))]
        wanted += [self.side.named(name) for name in added]
        return f"SELECT {', '.join(wanted)} FROM {self.table}{joins} {tail}"  # noqa: S608

    def _read(self, own: Sequence[str], columns: Sequence[str]) -> list[str]:
        """The application's columns that are read: those of the hash, then generated ones."""
        if not columns:
            return []
        stored = [name for name in own if name in self.schema.stored]
        return stored + [name for name in own if name in columns and name not in stored]

    @property
    def _vector_at(self) -> int | None:
        """Where the old vector stands among what a row's hash is made of."""
        own = [n for n in self.schema.names if n != self.schema.id and n in self.schema.stored]
        return 1 + own.index(self.schema.vector) if self.schema.vector in own else None

    def _batch(self, rows: list[tuple[Any, ...]], columns: Sequence[str]) -> pa.RecordBatch:
        own = [name for name in self.schema.names if name != self.schema.id]
        read = self._read(own, columns)
        added = [name for name in columns if name in self.side.columns]
        names = [self.schema.id, *read, *added]
        values = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        ids = self._checked(list(values[0]))
        out: dict[str, pa.Array] = {
            self.schema.id: pa.array(ids, pa.string() if self.text_ids() else pa.int64())
        }
        known = dict(zip(names, values, strict=True))
        for name in columns:
            if name in self.side.columns:
                column = self.side.columns[name]
                found = known[name]
                if column.kind == "vector":
                    out[name] = self._vectors(found, column.dim, name, ids)
                else:
                    out[name] = pa.array(found, column.arrow)
            elif name == self.schema.vector:
                dim = self.schema.dim(self.connection) or 0
                out[name] = self._vectors(known[name], dim, name, ids)
            elif name != self.schema.id:
                out[name] = self._values(known[name], name)
        out[TOKEN] = self._tokens(rows, 1 + len([n for n in read if n in self.schema.stored]))
        return pa.RecordBatch.from_pydict(out)

    def _checked(self, ids: list[Any]) -> list[Id]:
        kind = str if self.text_ids() else int
        for key in ids if set(map(type, ids)) - {kind} else ():
            if type(key) is not kind:
                what = "a row without an id" if key is None else f"the id {key!r}"
                raise BadInput(
                    f"has {what} among those of {'text' if kind is str else 'whole numbers'}",
                    where=self.name,
                    step="give all rows ids of one type",
                )
        return ids

    def _vectors(self, found: Sequence[Any], dim: int, name: str, ids: list[Id]) -> pa.Array:
        whole = set(map(type, found)) <= {bytes} and set(map(len, found)) <= {4 * dim}
        there = np.array([value is not None for value in found], bool)
        for key, value in () if whole else zip(ids, found, strict=True):
            if value is not None and (not isinstance(value, bytes) or len(value) != 4 * dim):
                size = f"{len(value) / 4:g} dimensions" if isinstance(value, bytes) else "no BLOB"
                raise BadInput(
                    f"{name!r} of row {key!r} is of {size}, and others of {dim}",
                    where=self.name,
                    step="keep vectors of one model in the column",
                )
        numbers = np.zeros((0 if whole else len(found), dim), np.float32)
        if whole:
            numbers = np.frombuffer(b"".join(found), "<f4").reshape(len(found), dim)
        elif there.any():
            data = b"".join(value for value in found if value is not None)
            numbers[there] = np.frombuffer(data, "<f4").reshape(-1, dim)
        if name == self.schema.vector and self.schema.needs_vector:
            # Where no row can be without a vector, one of zeros says that there is none.
            there &= numbers.any(axis=1)
        if there.all() and dim:
            return to_arrow(numbers)
        return pa.FixedSizeListArray.from_arrays(
            pa.array(numbers.reshape(-1)), dim, mask=pa.array(~there)
        )

    def _values(self, found: Sequence[Any], name: str) -> pa.Array:
        """By the declared type where the values are of it, else by what they are."""
        declared = self.schema.field(name).type.upper()
        for words, kind in _ARROW:
            if any(word in declared for word in words):
                try:
                    return pa.array(found, kind)
                except (pa.ArrowException, TypeError, ValueError):
                    break
        try:
            return pa.array(found)
        except (pa.ArrowException, TypeError, ValueError):
            raise BadInput(
                f"{name!r} holds values of several types",
                where=self.name,
                step="leave this column out, or give it one type",
            ) from None

    def _tokens(self, rows: list[tuple[Any, ...]], width: int) -> pa.Array:
        marks = np.zeros(len(rows), MARKS)
        # Rows that are read for their ids alone are not read whole: their tokens fit no row.
        if width > 1:
            whole = not rows or len(rows[0]) == width
            marks["hash"] = _hashes(
                rows if whole else [row[:width] for row in rows], self._vector_at
            )
            marks["moment"] = self.moment
        data = pa.py_buffer(marks)
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(rows), [None, data])


def split_tokens(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hashes and moments of a column of tokens."""
    found = np.frombuffer(
        column.buffers()[1], MARKS, count=len(column), offset=column.offset * MARKS.itemsize
    )
    return found["hash"], found["moment"]


def conditions(where: Where | None, schema: Schema) -> Iterator[tuple[str, list[Any]]]:
    """A filter as conditions on the table `t`, each with what is bound in it."""
    for name, wanted in check_where(where, schema.names).items():
        column = f"t.{quoted(name)}"
        if isinstance(wanted, Range):
            ends = "".join(f" AND {column} {sign} ?" for sign, _ in wanted.ends)
            # Text compares with numbers by rules of its own.
            numbers = f"typeof({column}) IN ('integer', 'real')"
            yield numbers + ends, [end for _, end in wanted.ends]
        else:
            fitting = [one for one in wanted if _is_comparable(one, schema, name)]
            yield f"{column} IN ({', '.join('?' * len(fitting))})", fitting


def _is_comparable(value: Any, schema: Schema, name: str) -> bool:
    """Whether a value is compared as what it is: the type of a column may turn 1 into '1', and
    '1' into 1, which no other store does."""
    declared = schema.field(name).type.upper()
    if schema.vec0 is not None or declared in ("", "BLOB"):
        return True
    if any(word in declared for word in ("CHAR", "TEXT", "CLOB")) and "INT" not in declared:
        return isinstance(value, str)
    return not isinstance(value, str) or not _is_number(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _hashes(rows: Sequence[tuple[Any, ...]], vector: int | None) -> NDArray[np.int64]:
    """63 bits of what stands in each row, never all of them zero; `vector` is the place of a BLOB
    of numbers, which all rows together are quicker with."""
    out = np.zeros(len(rows), np.uint64)
    others = rows
    if vector is not None:
        found = [row[vector] for row in rows]
        sizes = [len(blob) if type(blob) is bytes and not len(blob) % 4 else 0 for blob in found]
        for size in set(sizes) - {0}:
            some = [at for at, one in enumerate(sizes) if one == size]
            words = np.frombuffer(b"".join([found[at] for at in some]), "<u4")
            out[some] = bit_hashes(words.reshape(len(some), -1))
        others = [
            (*row[:vector], size, *row[vector + 1 :]) if size else row
            for row, size in zip(rows, sizes, strict=True)
        ]
    each = (hashlib.blake2b(marshal.dumps(row, 2), digest_size=8).digest() for row in others)
    out ^= np.frombuffer(b"".join(each), "<u8")
    return (out >> np.uint64(1)).astype(np.int64) | np.int64(1)
