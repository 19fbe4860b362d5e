"""The application's side of each store: what it does to its own rows, with its own library.

Nothing here goes through Crossfade, so that the tests see stores as their applications do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from crossfade.files.arrow import to_arrow


class App(Protocol):
    """An application with a table of `id`, `body`, `kind` and old vectors."""

    place: str

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None: ...
    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None: ...
    def change(self, key: Any, body: str, old: np.ndarray) -> None: ...
    def delete(self, key: Any) -> None: ...
    def old(self) -> dict[Any, np.ndarray]: ...


class LanceApp:
    """A LanceDB user."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self.database = lancedb.connect(folder / "db")
        self.place = str(folder / "db" / "items.lance")

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.database.create_table("items", _table(ids, bodies, kinds, old))

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self._open().add(_table(ids, bodies, kinds, old))

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        table = self._open()
        table.update(where=f"id = {key!r}", values={"body": body, "vector": old.tolist()})

    def delete(self, key: Any) -> None:
        self._open().delete(f"id = {key!r}")

    def old(self) -> dict[Any, np.ndarray]:
        rows = self._open().to_arrow().select(["id", "vector"]).to_pylist()
        return {row["id"]: np.array(row["vector"], np.float32) for row in rows}

    def _open(self) -> Any:
        return self.database.open_table("items")


class PostgresApp:
    """A pgvector user; every test has a database of its own on the session's server."""

    def __init__(self, folder: Path) -> None:
        from tests.stores.postgres import fresh_database

        self.url = fresh_database()
        self.place = f"{self.url}#items"

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        kind = "bigint" if isinstance(ids[0], int) else "text"
        self.run(
            f"CREATE TABLE items (id {kind} PRIMARY KEY, body text, kind int, "
            f"vector vector({old.shape[1]}))"
        )
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        vectors = [str(row.tolist()) for row in old]
        rows = list(zip(ids, bodies, kinds, vectors, strict=True))
        import psycopg

        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s, %s)", rows)

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        self.run(
            "UPDATE items SET body = %s, vector = %s WHERE id = %s", body, str(old.tolist()), key
        )

    def delete(self, key: Any) -> None:
        self.run("DELETE FROM items WHERE id = %s", key)

    def old(self) -> dict[Any, np.ndarray]:
        rows = self.run("SELECT id, vector::text FROM items")
        return {key: np.array(numbers(text), np.float32) for key, text in rows}

    def run(self, statement: str, *values: Any) -> list:
        import psycopg

        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.strip("[]").split(",")]


def _table(ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> pa.Table:
    vectors = to_arrow(old.astype(np.float32))
    return pa.table({"id": ids, "body": bodies, "kind": kinds, "vector": vectors})
