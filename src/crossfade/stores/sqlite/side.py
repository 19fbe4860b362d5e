"""Added columns, in two tables of the same file: an UPDATE of the application's own rows would set
off its triggers, and write its old vectors anew with every batch.

    crossfade_rows_TABLE      id, and the bookkeeping: short rows, for they are counted often
    crossfade_vectors_TABLE   id, and the vectors

A row that has gone from the application's table may still be here. It counts for nothing, and goes
with the tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.stores.contract import Column
from crossfade.stores.rows import matrix
from crossfade.stores.sqlite.connection import Connection
from crossfade.stores.sqlite.schema import quoted

_TYPES = {"text": "TEXT", "integer": "INTEGER"}
_VECTOR = re.compile(r"float\[(\d+)\]")


@dataclass(frozen=True)
class Side:
    """The added columns of a table, as they are at one moment."""

    table: str
    columns: Mapping[str, Column]

    @classmethod
    def load(cls, connection: Connection, table: str) -> Side:
        columns: dict[str, Column] = {}
        for vectors in (True, False):
            found = connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", (_name(table, vectors),)
            )
            for name, kind in found:
                told = _VECTOR.fullmatch(kind)
                if told is not None:
                    columns[name] = Column(name, "vector", int(told[1]))
                elif name != "id":
                    columns[name] = Column(name, "text" if kind == "TEXT" else "integer")
        return cls(table, columns)

    def column(self, name: str, where: str) -> Column:
        """An added column; it may have gone since the migration was last looked at."""
        if name not in self.columns:
            raise BadInput(f"has no added column {name!r}", where=where)
        return self.columns[name]

    def table_of(self, name: str) -> str:
        """The table that an added column is in, quoted."""
        return quoted(_name(self.table, self.columns[name].kind == "vector"))

    def add(self, connection: Connection, columns: Sequence[Column], *, text_ids: bool) -> None:
        for statement in self.adding(columns, text_ids=text_ids):
            connection.execute(statement)

    def adding(self, columns: Sequence[Column], *, text_ids: bool) -> list[str]:
        """The statements that add those of these columns that are not there."""
        # The key of integers is the row's own number; text keys get a tree of short rows.
        key = "id TEXT PRIMARY KEY NOT NULL" if text_ids else "id INTEGER PRIMARY KEY"
        out = []
        for column in columns:
            if column.name in self.columns:
                continue
            vector = column.kind == "vector"
            beside = quoted(_name(self.table, vector))
            kind = f"float[{column.dim}]" if vector else _TYPES[column.kind]
            made = f"CREATE TABLE IF NOT EXISTS {beside} ({key})"
            if made not in out:
                out.append(made)
            out.append(f"ALTER TABLE {beside} ADD COLUMN {quoted(column.name)} {kind}")
        return out

    def drop(self, connection: Connection, names: Sequence[str]) -> None:
        for statement in self.dropping(names):
            connection.execute(statement)

    def dropping(self, names: Sequence[str]) -> list[str]:
        """The statements that drop those of these columns that are there; a table with its last."""
        out = []
        for vectors in (True, False):
            beside = quoted(_name(self.table, vectors))
            mine = [n for n, one in self.columns.items() if (one.kind == "vector") == vectors]
            gone = [name for name in mine if name in names]
            if gone and len(gone) == len(mine):
                out.append(f"DROP TABLE {beside}")
            else:
                out += [f"ALTER TABLE {beside} DROP COLUMN {quoted(name)}" for name in gone]
        return out

    def put(self, connection: Connection, ids: Sequence[Any], rows: pa.RecordBatch) -> None:
        """Set all added columns of these ids; a row with nothing in any of them goes."""
        empty = _empty(rows, list(self.columns))
        self.take_away(connection, [key for key, gone in zip(ids, empty, strict=True) if gone])
        for vectors in (True, False):
            mine = [c for c in self.columns.values() if (c.kind == "vector") == vectors]
            if mine:
                values = [_values(rows, column) for column in mine]
                told = (
                    row
                    for row, gone in zip(zip(ids, *values, strict=True), empty, strict=True)
                    if not gone
                )
                connection.executemany(self.putting(vectors=vectors), told)

    def putting(self, *, vectors: bool) -> str:
        mine = [n for n, one in self.columns.items() if (one.kind == "vector") == vectors]
        names = ", ".join(["id", *map(quoted, mine)])
        marks = ", ".join("?" * (len(mine) + 1))
        beside = quoted(_name(self.table, vectors))
        return f"INSERT OR REPLACE INTO {beside} ({names}) VALUES ({marks})"  # noqa: S608

    def take_away(self, connection: Connection, ids: Sequence[Any]) -> None:
        """As if these rows had never been written."""
        for vectors in {one.kind == "vector" for one in self.columns.values()}:
            beside = quoted(_name(self.table, vectors))
            connection.executemany(
                f"DELETE FROM {beside} WHERE id = ?",  # noqa: S608
                [(key,) for key in ids],
            )

    def joins(self, names: Sequence[str], key: str) -> str:
        """What brings these columns to rows with the id `key`."""
        tables = dict.fromkeys(self.table_of(name) for name in names)
        return "".join(f" LEFT JOIN {beside} ON {beside}.id = {key}" for beside in tables)

    def named(self, name: str) -> str:
        """A column inside a statement."""
        return f"{self.table_of(name)}.{quoted(name)}"


def _name(table: str, vectors: bool) -> str:
    return f"crossfade_{'vectors' if vectors else 'rows'}_{table}"


def _values(rows: pa.RecordBatch, column: Column) -> list[Any]:
    if column.kind != "vector":
        out: list[Any] = rows[column.name].to_pylist()
        return out
    found = rows[column.name]
    there = found.is_valid().to_pylist()
    # Pieces of one buffer: SQLite takes them as they lie there.
    vectors = np.ascontiguousarray(matrix(found), "<f4")
    data, width = memoryview(vectors.tobytes()), 4 * column.dim
    return [data[n * width : (n + 1) * width] if has else None for n, has in enumerate(there)]


def _empty(rows: pa.RecordBatch, names: Sequence[str]) -> list[bool]:
    """Which rows have nothing in any of these columns."""
    valid = [rows[name].is_valid().to_numpy(zero_copy_only=False) for name in names]
    out: list[bool] = (~sum(valid[1:], valid[0])).tolist() if valid else [True] * len(rows)
    return out
