"""An application with a folder of Parquet files.

Inserts are new files. Changes and deletes write a file anew beside the old one and rename it into
place, so between its reading and its renaming whatever another did to that file is lost: the
harness does not let it replace files while a `finish` runs (see docs/reliability.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

_PIECE = 25
_KEPT = {"_crossfade"}
# What may stay in there: which migration there was, that no columns are there, and its lock.
_KEPT_INSIDE = {"values.json", "columns.json", "lock"}


class ParquetTable:
    """Looks at the folder for every operation."""

    unit_length, transactions = False, False
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._folder = Path(place)

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        self._folder.mkdir()
        items = list(rows.items())
        for part, first in enumerate(range(0, len(items), _PIECE)):
            self._write(f"part-{part}.parquet", _table(dict(items[first : first + _PIECE])))

    def insert(self, key: int, content: Content) -> None:
        dim = self.dimension() if content.vector is None else len(content.vector)
        if content.vector is not None and dim == D and self.dimension() != D:
            raise Refused("the files are of the new dimension")
        # Each content has a kind of its own, so no two files have one name.
        self._write(f"row-{content.kind}.parquet", _table({key: content}, dim or D))

    def set_text(self, key: int, content: Content) -> None:
        self._change(key, lambda row: row.update(body=content.body))

    def set_vector(self, key: int, content: Content) -> None:
        self._fits(key, content)
        self._change(key, lambda row: row.update(vector=_listed(content)))

    def set_both(self, rows: Mapping[int, Content]) -> None:
        for key, content in rows.items():
            self._fits(key, content)
            told = {"body": content.body, "vector": _listed(content)}
            self._change(key, lambda row, told=told: row.update(told))

    def delete(self, key: int) -> None:
        path, table = self._find(key)
        kept = [row for row in table.to_pylist() if row["id"] != key]
        self._write(path.name, pa.Table.from_pylist(kept, table.schema))

    def dimension(self, key: int | None = None) -> int | None:
        """Of the row's file; else the old one as long as any file is of it."""
        if key is not None:
            try:
                return _dim(self._find(key)[1].schema)
            except KeyError:
                return self.dimension()
        found = {_dim(pq.read_schema(path)) for path in self._files()}
        return D if D in found else next(iter(found), None)

    def rows(self) -> list[Found]:
        tables = [pq.read_table(path) for path in self._files()]
        return [
            Found(row["id"], row["body"], row["kind"], _vector(row["vector"]))
            for table in tables
            for row in table.to_pylist()
        ]

    def leftovers(self) -> list[str]:
        names = {name for path in self._files() for name in pq.read_schema(path).names}
        files = [
            path.name
            for path in self._folder.iterdir()
            if not _is_file(path) and path.name not in _KEPT
        ]
        inside = [
            f"_crossfade/{path.name}"
            for path in (self._folder / "_crossfade").iterdir()
            if path.name not in _KEPT_INSIDE
        ]
        return [name for name in sorted(names) if name not in OWN] + files + inside

    def lost(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing is held open."""

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if _is_file(path))

    def _find(self, key: int) -> tuple[Path, pa.Table]:
        for path in self._files():
            table = pq.read_table(path)
            if key in table["id"].to_pylist():
                return path, table
        raise KeyError(key)

    def _fits(self, key: int, content: Content) -> None:
        if content.vector is not None and len(content.vector) != self.dimension(key):
            raise Refused("the file is of another dimension")

    def _change(self, key: int, change: Callable[[dict[str, Any]], object]) -> None:
        path, table = self._find(key)
        rows = table.to_pylist()
        for row in rows:
            if row["id"] == key:
                change(row)
        self._write(path.name, pa.Table.from_pylist(rows, table.schema))

    def _write(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self._folder / f".{name}", row_group_size=10)
        (self._folder / f".{name}").replace(self._folder / name)


def _is_file(path: Path) -> bool:
    """Not one that is still being written."""
    return path.suffix == ".parquet" and not path.name.startswith(".")


def _dim(schema: pa.Schema) -> int:
    return int(schema.field("vector").type.list_size)


def _listed(content: Content) -> list[float] | None:
    return None if content.vector is None else content.vector.tolist()


def _vector(found: Any) -> np.ndarray | None:
    return None if found is None else np.array(found, np.float32)


def _table(rows: Mapping[int, Content], dim: int = D) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(list(rows), pa.int64()),
            "body": [content.body for content in rows.values()],
            "kind": pa.array([content.kind for content in rows.values()], pa.int64()),
            "vector": pa.array(map(_listed, rows.values()), pa.list_(pa.float32(), dim)),
        }
    )
