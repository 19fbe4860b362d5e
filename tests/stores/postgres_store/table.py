"""Tables of an application with pgvector, made in bulk, and the same thing in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from tests.stores.apps import numbers
from tests.stores.postgres import fresh_database

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, open_store
from crossfade.stores.rows import matrix

DIM, SHARED = 16, 24
VECTOR = Column("crossfade_vector", "vector", SHARED)
STATE = Column("crossfade_state", "text")
ADDED = (VECTOR, STATE)
NAMES = [VECTOR.name, STATE.name]


def vectors(rows: int, dim: int = DIM, seed: int = 0) -> np.ndarray:
    """In clusters, as embeddings are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(20, dim))
    return (centres[rng.integers(20, size=rows)] + rng.normal(size=(rows, dim))).astype(np.float32)


def text(vector: np.ndarray) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


class Table:
    """An application's table `items`: an id, a body, kinds to filter by, a vector."""

    def __init__(self, url: str | None = None, name: str = "items") -> None:
        self.url, self.name = url or fresh_database(), name
        self.address = f"{self.url}#{name}"

    def create(
        self,
        old: np.ndarray,
        *,
        kinds: np.ndarray | None = None,
        vector: str = "vector vector({})",
        more: str = "",
    ) -> np.ndarray:
        """With ids from 0 on; gives the old vectors."""
        column = vector.format(old.shape[1])
        self.run(
            f"CREATE TABLE {self.name} (id bigint PRIMARY KEY, body text, kind int, {column}{more})"
        )
        kinds = np.arange(len(old)) % 3 if kinds is None else kinds
        self.insert(range(len(old)), old, kinds)
        self.run(f"ANALYZE {self.name}")
        return old

    def insert(self, ids: Any, old: np.ndarray, kinds: Any = None) -> None:
        kinds = np.zeros(len(old), int) if kinds is None else kinds
        into = f"COPY {self.name} (id, body, kind, vector) FROM STDIN"
        with psycopg.connect(self.url) as connection, connection.cursor().copy(into) as copy:
            for key, kind, vector in zip(ids, kinds, old, strict=True):
                copy.write_row((key, f"text {key}", int(kind), text(vector)))

    def change(self, key: int, old: np.ndarray) -> None:
        change = f"UPDATE {self.name} SET vector = %s WHERE id = %s"  # noqa: S608
        self.run(change, text(old), key)

    def index(
        self, name: str = "items_vector", how: str = "hnsw (vector vector_cosine_ops)"
    ) -> None:
        self.run(f"CREATE INDEX {name} ON {self.name} USING {how}")

    def open(self, url: str | None = None, **named: Any) -> Any:
        return open_store(f"{url or self.url}#{self.name}", **named)

    def run(self, statement: str, *values: Any) -> list:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def role(self, name: str, grants: str = "SELECT, INSERT, UPDATE, DELETE") -> str:
        """A role of this database alone that may log in, and the URL with which it does."""
        role = f"{name}_{self.run('SELECT current_database()')[0][0]}"
        self.run(f"CREATE ROLE {role} LOGIN")
        self.run(f"GRANT {grants} ON {self.name} TO {role}")
        return self.url.replace("://postgres", f"://{role}", 1), role

    def vectors(self, column: str = "vector") -> dict[int, np.ndarray | None]:
        rows = self.run(f"SELECT id, {column}::text FROM {self.name}")  # noqa: S608
        return {k: None if v is None else np.array(numbers(v), np.float32) for k, v in rows}


def lifted(old: np.ndarray) -> np.ndarray:
    """What stands for F(old): another space, of another dimension, and float32 to the last bit."""
    old = np.atleast_2d(old).astype(np.float32)
    turn = np.random.default_rng(3).normal(size=(old.shape[1], SHARED)).astype(np.float32)
    # One product at a time: a batch would be summed in another order than a row.
    return np.stack([(row[:, None] * turn).sum(axis=0, dtype=np.float32) for row in old])


def made(rows: pa.RecordBatch, state: str = "forward") -> pa.RecordBatch | None:
    """What to write of rows as `stream` gives them; nothing of null and zero vectors."""
    old = matrix(rows["vector"])
    good = pa.array(np.abs(old).sum(axis=1) > 0)
    rows = rows.filter(good)
    if not len(rows):
        return None
    return pa.RecordBatch.from_pydict(
        {
            "id": rows["id"],
            VECTOR.name: to_arrow(lifted(matrix(rows["vector"]))),
            STATE.name: pa.array([state] * len(rows)),
            TOKEN: rows[TOKEN],
        }
    )


def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """As a migration's: of the rows that it is shown, those whose shared vector is not right."""
    fresh = made(rows)
    if fresh is None:
        return None
    there = {
        key: None if vector is None else np.array(vector, np.float32)
        for key, vector in zip(rows["id"].to_pylist(), rows[VECTOR.name].to_pylist(), strict=True)
    }
    wanted = matrix(fresh[VECTOR.name])
    stale = [
        there[key] is None or not np.array_equal(there[key], wanted[i])
        for i, key in enumerate(fresh["id"].to_pylist())
    ]
    return fresh.filter(pa.array(stale)) if any(stale) else None


def lift(store: Any) -> None:
    """Add the columns and fill them."""
    store.add_columns(ADDED)
    for rows in store.stream(["vector"]):
        fresh = made(rows)
        if fresh is not None:
            assert store.write(fresh) == len(fresh)
