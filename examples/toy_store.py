"""A store in some hundred lines: one Parquet file, read whole, replaced whole.

It shows what a store has to do (docs/writing-a-store.md) and passes the contract. It is no store to
use: two writers at a time lose each other's rows.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossfade.errors import BadInput
from crossfade.files.atomic import replacing
from crossfade.stores import TOKEN, Column, Description, Hit, Obstacle, StoreKind
from crossfade.stores.address import Address
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import PREFIX, Range, check_where
from crossfade.stores.rows import in_order, matrix, one_batch, similarities
from crossfade.stores.values import FileValues


class ToyStore:
    kind = "toy"

    def __init__(self, path: str, *, id: Any = None, vector: Any = None, distance: Any = None):
        self.path, self.name = Path(path), f"toy:{path}"
        self.id, self.vector, self.distance = id or "id", vector or "vector", distance or "cosine"
        self._values = FileValues(self.path.with_suffix(".json"))
        if self.vector not in self._load().column_names:
            raise BadInput(f"has no column {self.vector!r}", where=self.name)

    def describe(self) -> Description:
        table = self._load()
        added = tuple(name for name in table.column_names if name.startswith(PREFIX))
        rest = tuple(n for n in table.column_names if n not in (self.id, self.vector, *added))
        kind = "integer" if pa.types.is_integer(table[self.id].type) else "text"
        dim = table.schema.field(self.vector).type.list_size
        return Description(self.kind, self.name, len(table), self.id, kind, self.vector, dim,
                           self.distance, rest, added, ())  # fmt: skip

    def stream(self, columns: Sequence[str], *, after: Any = None, size: int = 4096,
               missing: str | None = None) -> Iterator[pa.RecordBatch]:  # fmt: skip
        while True:
            table = self._load().sort_by(self.id)
            keep = pc.scalar(True) if after is None else pc.field(self.id) > pc.scalar(after)
            keep = keep if missing is None else keep & pc.field(missing).is_null()
            table = table.filter(keep).slice(0, size)
            if not len(table):
                return
            after = table[self.id][-1].as_py()
            yield one_batch(self._shown(table, columns))

    def read(self, ids: Sequence[Any], columns: Sequence[str]) -> pa.RecordBatch:
        return in_order(self._shown(self._load(), columns), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        table = self._load()
        for column in (c for c in columns if c.name not in table.column_names):
            table = table.append_column(column.name, pa.nulls(len(table), column.arrow))
        self._save(table)

    def drop_columns(self, names: Sequence[str]) -> None:
        table = self._load()
        self._save(table.drop_columns([name for name in names if name in table.column_names]))

    def write(self, rows: pa.RecordBatch) -> int:
        return self._change({row[self.id]: row for row in rows.to_pylist()})

    def erase(self, rows: pa.RecordBatch) -> int:
        empty = dict.fromkeys(self.describe().added)
        return self._change({row[self.id]: row | empty for row in rows.to_pylist()})

    def tally(self, column: str) -> dict[str | None, int]:
        if column not in self._load().column_names:
            raise BadInput(f"has no column {column!r}", where=self.name)
        return dict(Counter(self._load()[column].to_pylist()))

    def search(self, query: Any, *, column: str, k: int, where: Mapping[str, Any] | None = None,
               missing: str | None = None, columns: Sequence[str] = ()) -> list[Hit]:  # fmt: skip
        table = self._load()
        for name, wanted in check_where(where, tuple(table.column_names)).items():
            field = pc.field(name)
            if isinstance(wanted, Range):
                for sign, end in wanted.ends:
                    table = table.filter(field >= end if sign == ">=" else field <= end)
            else:
                table = table.filter(field.isin(wanted))
        if column not in table.column_names:
            raise BadInput(f"has no column {column!r}", where=self.name)
        table = table.filter(pc.field(column).is_valid())
        table = table if missing is None else table.filter(pc.field(missing).is_null())
        scores = similarities(self.distance, matrix(table[column]), query)
        rows = table.take(pa.array(np.argsort(-scores, kind="stable")[:k])).to_pylist()
        best = sorted(scores.tolist(), reverse=True)
        return [
            Hit(row[self.id], score, {name: row[name] for name in columns})
            for row, score in zip(rows, best, strict=False)
        ]

    def build_index(self, column: str) -> None:
        """It goes through all rows."""

    def version(self) -> str | None:
        return str(self.path.stat().st_mtime_ns)

    activity = version

    def duplicates(self) -> list[Any]:
        return [key for key, n in Counter(self._load()[self.id].to_pylist()).items() if n > 1]

    def obstacles(self) -> list[Obstacle]:
        return []

    def promote(self, column: str, drop: Sequence[str], *, columns: Sequence[str],
                work: Callable[[pa.RecordBatch], pa.RecordBatch | None]) -> str:  # fmt: skip
        for rows in self.stream([self.vector, *columns]) if self._has(column) else ():
            made = work(rows)
            if made is not None:
                self.write(made)
        if self._has(column):
            table = self._load().drop_columns([self.vector])
            names = [self.vector if name == column else name for name in table.column_names]
            self._save(table.rename_columns(names))
        self.drop_columns(drop)
        return self.vector

    def withdraw(self, column: str) -> None:
        """The switch is one rename: there is nothing in between to undo."""

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    def lock(self) -> AbstractContextManager[None]:
        return folder_lock(self.path.with_suffix(".lock"), self.name)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        names = ", ".join(column.name for column in columns)
        steps = ("forward", "backfill", "finish", "rollback")
        return {"start": [f"add {names}"]} | {step: ["rewrite the file"] for step in steps}

    def close(self) -> None:
        """Nothing is held open."""

    def _load(self) -> pa.Table:
        return pq.read_table(self.path)

    def _save(self, table: pa.Table) -> None:
        with replacing(self.path, overwrite=True) as temporary:
            pq.write_table(table, temporary)

    def _has(self, column: str) -> bool:
        return column in self._load().column_names

    def _shown(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Rows with a token each, which is another one once what the application wrote changes."""
        own = [name for name in table.column_names if not name.startswith(PREFIX)]
        marks = [zlib.crc32(repr(row).encode()) for row in table.select(own).to_pylist()]
        names = list(dict.fromkeys([self.id, *columns]))
        return table.select(names).append_column(TOKEN, pa.array(marks, pa.int64()))

    def _change(self, rows: dict[Any, dict[str, Any]]) -> int:
        table = self._load()
        marks = self._shown(table, [])[TOKEN].to_pylist()
        out, changed = table.to_pylist(), 0
        for row, mark in zip(out, marks, strict=True):
            given = rows.get(row[self.id])
            if given is not None and given.get(TOKEN, mark) == mark:
                row.update({name: value for name, value in given.items() if name != TOKEN})
                changed += 1
        self._save(pa.Table.from_pylist(out, table.schema))
        return changed


def _open(where: Address, **named: Any) -> ToyStore:
    return ToyStore(where.at.removeprefix("toy:"), **named)


KIND = StoreKind(
    "toy",
    "toy:FILE.parquet#items",
    _open,
    lambda where, key: _open(where).get(key),
    schemes=("toy",),
    local=True,
)
