"""A user of SQLite, by a `vec0` table or by a BLOB column, which is then never without a look at
the length that the others have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

_KEPT = {"items", "crossfade_values"}
_PATIENCE = 10_000


class SqliteTable:
    """One connection, with a write-ahead log."""

    unit_length, transactions = False, True
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._path = Path(place.removeprefix("sqlite:").partition("#")[0])
        self._path.parent.mkdir(exist_ok=True)
        self._connection = apsw.Connection(str(self._path))
        self._connection.set_busy_timeout(_PATIENCE)
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())
        self._connection.enable_load_extension(False)

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        """Every other table is of `vec0`."""
        self._connection.execute("PRAGMA journal_mode = wal")
        if indexed:
            self._connection.execute(
                "CREATE VIRTUAL TABLE items USING vec0(id integer primary key, +body text, "
                f"kind integer, vector float[{D}] distance_metric=cosine)"
            )
        else:
            self._connection.execute(
                "CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT, kind INTEGER, vector BLOB)"
            )
            # One that nothing but changes of its text should set off.
            self._connection.execute("CREATE TABLE told (id INTEGER)")
            self._connection.execute(
                "CREATE TRIGGER tell AFTER UPDATE ON items WHEN OLD.body = NEW.body AND "
                "(SELECT count(*) FROM told) > 10000 BEGIN INSERT INTO told VALUES (NEW.id); END"
            )
        with self._connection:
            for key, content in rows.items():
                self._insert(key, content)

    def insert(self, key: int, content: Content) -> None:
        with self._writing([content]):
            self._insert(key, content)

    def set_text(self, key: int, content: Content) -> None:
        with self._writing([]):
            self._run("UPDATE items SET body = ? WHERE id = ?", content.body, key)

    def set_vector(self, key: int, content: Content) -> None:
        with self._writing([content]):
            self._run("UPDATE items SET vector = ? WHERE id = ?", _blob(content), key)

    def set_both(self, rows: Mapping[int, Content]) -> None:
        with self._writing(list(rows.values())):
            for key, content in rows.items():
                said = "UPDATE items SET body = ?, vector = ? WHERE id = ?"
                self._run(said, content.body, _blob(content), key)

    def delete(self, key: int) -> None:
        with self._writing([]):
            self._run("DELETE FROM items WHERE id = ?", key)

    def dimension(self, key: int | None = None) -> int | None:
        found = self._run("SELECT length(vector) / 4 FROM items WHERE vector IS NOT NULL LIMIT 1")
        return int(found[0][0]) if found else None

    def rows(self) -> list[Found]:
        found = self._run("SELECT id, body, kind, vector FROM items")
        return [Found(key, body, kind, self._vector(blob)) for key, body, kind, blob in found]

    def leftovers(self) -> list[str]:
        columns = self._run("SELECT name FROM pragma_table_info('items')")
        tables = self._run(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' "
            "AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite_%' "
            "AND name NOT LIKE 'items_vector_chunks%'"
        )
        beside = [path.name for path in self._path.parent.iterdir()]
        known = {self._path.name, f".{self._path.name}.crossfade.items.lock"}
        known |= {f"{self._path.name}-{end}" for end in ("wal", "shm")}
        return [
            *(name for (name,) in columns if name not in OWN),
            *(name for (name,) in tables if name not in _KEPT | {"told"}),
            *(name for name in beside if name not in known),
        ]

    def lost(self) -> list[str]:
        if self._is_vec0():
            return []
        there = self._run("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = 'tell'")
        return [] if there else ["the application's trigger"]

    def close(self) -> None:
        self._connection.close()

    def _is_vec0(self) -> bool:
        found = self._run("SELECT sql FROM sqlite_schema WHERE name = 'items'")
        return "vec0" in found[0][0]

    def _vector(self, blob: bytes | None) -> np.ndarray | None:
        found = None if blob is None else np.frombuffer(blob, np.float32)
        if found is not None and _is_none(found) and self._is_vec0():
            # In a vec0 table there is no other way to have none.
            return None
        return found

    def _insert(self, key: int, content: Content) -> None:
        self._run(
            "INSERT INTO items (id, body, kind, vector) VALUES (?, ?, ?, ?)",
            key,
            content.body,
            content.kind,
            _blob(content),
        )

    @contextmanager
    def _writing(self, contents: list[Content]) -> Iterator[None]:
        """A transaction, refused where a vector is not of the length that the column has."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            raise Refused("the file is locked") from None
        try:
            vec0, dim = self._is_vec0(), self.dimension()
            for content in contents:
                if content.vector is None and vec0:
                    raise Refused("no row is without a vector")
                if content.vector is not None and _is_none(content.vector) and vec0:
                    raise Refused("zeros are for rows without a vector")
                if content.vector is not None and dim not in (None, len(content.vector)):
                    raise Refused("the column is of another dimension")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def _run(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values or None).fetchall()


def _is_none(vector: np.ndarray) -> bool:
    """Whether a vector is what a row without one has, once the columns have changed places."""
    return len(vector) != D and not vector.any()


def _blob(content: Content) -> bytes | None:
    return None if content.vector is None else content.vector.astype(np.float32).tobytes()
