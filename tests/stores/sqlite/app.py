"""Users of SQLite: one keeps vectors in a BLOB column, the other in a `vec0` table.

By apsw, as Crossfade has it: two libraries of SQLite in one process would drop each other's locks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec

TEXT_IDS = ("b", "a", "it's", "Ä", 'quo"te', "z", "gone")


def connect(path: Path) -> apsw.Connection:
    made = apsw.Connection(str(path))
    made.set_busy_timeout(10_000)
    made.enable_load_extension(True)
    made.load_extension(sqlite_vec.loadable_path())
    made.enable_load_extension(False)
    return made


class SqliteApp:
    """With a BLOB column, and a log beside the file."""

    text_ids, unit_length = TEXT_IDS, False
    journal = "wal"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "shop.db"
        self.address = f"sqlite:{self.path}#items"
        self.connection = connect(self.path)
        self.connection.execute(f"PRAGMA journal_mode = {self.journal}")
        self.connection.execute("PRAGMA synchronous = OFF")

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.connection.execute(self.table("integer" if isinstance(ids[0], int) else "text", old))
        self.insert(ids, bodies, kinds, old)

    def table(self, kind: str, old: np.ndarray) -> str:
        return f"CREATE TABLE items (id {kind} PRIMARY KEY, body TEXT, kind INTEGER, vector BLOB)"

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        vectors = [np.asarray(row, np.float32).tobytes() for row in old]
        rows = zip(ids, bodies, kinds, vectors, strict=True)
        with self.connection:
            self.connection.executemany(
                "INSERT INTO items (id, body, kind, vector) VALUES (?, ?, ?, ?)", list(rows)
            )

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        vector = np.asarray(old, np.float32).tobytes()
        self.run("UPDATE items SET body = ?, vector = ? WHERE id = ?", body, vector, key)

    def empty(self, key: Any) -> None:
        self.run("UPDATE items SET vector = NULL WHERE id = ?", key)

    def delete(self, key: Any) -> None:
        self.run("DELETE FROM items WHERE id = ?", key)

    def old(self) -> dict[Any, np.ndarray]:
        rows = self.run("SELECT id, vector FROM items")
        return {key: np.frombuffer(vector, np.float32) for key, vector in rows}

    def close(self) -> None:
        self.connection.close()

    def run(self, statement: str, *values: Any) -> list:
        return self.connection.execute(statement, values or None).fetchall()


class JournalApp(SqliteApp):
    """With a rollback journal, as SQLite has it where nobody says otherwise."""

    journal = "delete"


class Vec0App(SqliteApp):
    """With a `vec0` table, in which no row is without a vector."""

    def table(self, kind: str, old: np.ndarray) -> str:
        return (
            f"CREATE VIRTUAL TABLE items USING vec0(id {kind} primary key, +body text, "
            f"kind integer, vector float[{old.shape[1]}] distance_metric=cosine)"
        )

    def empty(self, key: Any) -> None:
        (vector,) = self.run("SELECT vector FROM items WHERE id = ?", key)[0]
        self.run("UPDATE items SET vector = zeroblob(?) WHERE id = ?", len(vector), key)
