"""A pgvector user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused


class PostgresTable:
    """One connection, opened again when the server ended it."""

    unit_length, transactions = False, True
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._url, _, self._name = place.partition("#")
        self._index = f"by_vector_{self._name}"
        self._open: psycopg.Connection[Any] | None = None
        self._indexed = False

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        self._run(
            "CREATE TABLE {items} (id bigint PRIMARY KEY, body text, kind bigint, "
            f"vector vector({D}))"
        )
        self._indexed = indexed
        with self._connection().transaction(), self._connection().cursor() as cursor:
            values = [(key, *_values(content)) for key, content in rows.items()]
            cursor.executemany(self._said("INSERT INTO {items} VALUES (%s, %s, %s, %s)"), values)
        if indexed:
            self._run("CREATE INDEX {index} ON {items} USING hnsw (vector vector_cosine_ops)")

    def insert(self, key: int, content: Content) -> None:
        self._write(
            "INSERT INTO {items} (id, body, kind, vector) VALUES (%s, %s, %s, %s)",
            key,
            *_values(content),
        )

    def set_text(self, key: int, content: Content) -> None:
        self._write("UPDATE {items} SET body = %s WHERE id = %s", content.body, key)

    def set_vector(self, key: int, content: Content) -> None:
        vector = _values(content)[2]
        self._write("UPDATE {items} SET vector = %s WHERE id = %s", vector, key)

    def set_both(self, rows: Mapping[int, Content]) -> None:
        statement = self._said("UPDATE {items} SET body = %s, vector = %s WHERE id = %s")

        def together(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                for key, content in rows.items():
                    body, _, vector = _values(content)
                    connection.execute(statement, (body, vector, key))

        self._try(together)

    def delete(self, key: int) -> None:
        self._write("DELETE FROM {items} WHERE id = %s", key)

    def dimension(self, key: int | None = None) -> int | None:
        found = self._run(
            "SELECT atttypmod FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attname = 'vector'",
            self._name,
        )
        return int(found[0][0]) if found else None

    def rows(self) -> list[Found]:
        found = self._run("SELECT id, body, kind, vector::text FROM {items}")
        return [Found(key, body, kind, _vector(text)) for key, body, kind, text in found]

    def leftovers(self) -> list[str]:
        columns = self._run(
            "SELECT attname FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            self._name,
        )
        beside = self._run(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v', 'm', 'S', 'f', 'p') "
            "AND relname LIKE %s AND relname <> %s",
            f"%{self._name}%",
            self._name,
        )
        triggers = self._run(
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = %s::regclass",
            self._name,
        )
        names = [name for (name,) in [*columns, *beside, *triggers]]
        return [name for name in names if name not in OWN]

    def lost(self) -> list[str]:
        """The application's index of its old vectors."""
        if not self._indexed:
            return []
        there = self._run(
            "SELECT 1 FROM pg_indexes WHERE tablename = %s AND indexname = %s",
            self._name,
            self._index,
        )
        return [] if there else ["the application's index of its vectors"]

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self) -> psycopg.Connection[Any]:
        if self._open is None or self._open.closed:
            self._open = psycopg.connect(self._url, autocommit=True)
        return self._open

    def _said(self, statement: str) -> sql.Composed:
        names = {"items": sql.Identifier(self._name), "index": sql.Identifier(self._index)}
        return sql.SQL(statement).format(**names)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        """Something that can be said twice."""
        while True:
            try:
                cursor = self._connection().execute(self._said(statement), values or None)
                return cursor.fetchall() if cursor.description else []
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.close()

    def _write(self, statement: str, *values: Any) -> None:
        self._try(lambda connection: connection.execute(self._said(statement), values))

    def _try(self, act: Callable[[psycopg.Connection[Any]], object]) -> None:
        try:
            connection = self._connection()
        except psycopg.OperationalError:
            raise Refused("the server is away") from None
        try:
            act(connection)
        except psycopg.errors.UndefinedColumn:
            raise Refused("there is no column") from None
        except psycopg.errors.DeadlockDetected:
            raise Refused("a deadlock") from None
        except psycopg.DataError:
            if self.dimension() == D:
                raise
            raise Refused("the column is of the new dimension") from None
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.close()
            raise


def _values(content: Content) -> tuple[str, int, str | None]:
    vector = None if content.vector is None else str(content.vector.tolist())
    return content.body, content.kind, vector


def _vector(text: str | None) -> np.ndarray | None:
    return None if text is None else np.array(text.strip("[]").split(","), np.float32)
