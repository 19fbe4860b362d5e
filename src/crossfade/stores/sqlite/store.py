"""A table of a SQLite file with sqlite-vec: a `vec0` table, or a BLOB column of an ordinary one.

The application writes through connections of its own. Its table has no column, trigger or index put
on it: what a migration adds lies in tables beside it (`side`), in the same file, so that a batch is
compared with the rows and written in one transaction, which keeps every other writer out.

A `vec0` table finds rows by one id or goes through all: its ids are listed once for a stream, and
its rows then read by id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
    Column,
    Description,
    Hit,
    Id,
    Obstacle,
    Scratch,
    Where,
    Work,
)
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import PREFIX, check_name
from crossfade.stores.scratch import folder_beside
from crossfade.stores.sqlite.connection import Connection, Database, file_of
from crossfade.stores.sqlite.promote import rebuilding, replacing_blobs, switch
from crossfade.stores.sqlite.rows import Seen, split_tokens
from crossfade.stores.sqlite.schema import (
    declared_distance,
    find_obstacles,
    load_schema,
    quoted,
    resolve,
)
from crossfade.stores.sqlite.search import search
from crossfade.stores.sqlite.side import Side
from crossfade.stores.sqlite.state import get_value, put_value
from crossfade.stores.values import beside

_NAMED = 10


class SqliteStore:
    """A table of a SQLite file."""

    kind = "sqlite"

    def __init__(
        self,
        at: str,
        table: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self.path = file_of(at)
        self.name = f"sqlite:{self.path}#{table}"
        self._table = table
        if table.startswith(PREFIX):
            raise BadInput("is a table of Crossfade's own", where=self.name)
        self._database = Database(self.path, self.name)
        try:
            with self._database.reading() as connection:
                schema = load_schema(connection, table, self.name)
                schema = resolve(schema, connection, id, vector, self.name)
                self.id, self.vector = schema.id, schema.vector
                told = distance or declared_distance(schema, self.name)
                self.distance: Distance = told or "cosine"
                self._check_encoding(connection)
        except BaseException:
            self._database.close()
            raise

    def describe(self) -> Description:
        with self._seen() as seen:
            dim = seen.schema.dim(seen.connection)
            if dim is None:
                raise BadInput(f"{self.vector!r} has no vector in it", where=self.name)
            return Description(
                kind=self.kind,
                name=self.name,
                rows=seen.count(),
                id=self.id,
                id_type="text" if seen.text_ids() else "integer",
                vector=self.vector,
                dim=dim,
                distance=self.distance,
                columns=seen.schema.names,
                added=tuple(seen.side.columns),
                indexed=(),
            )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        with self._seen() as seen:
            listed = None if seen.schema.vec0 is None else seen.ids(missing)
        if listed is not None:
            ids = [key for key in listed if after is None or _after(key, after)]
            for first in range(0, len(ids), size):
                with self._seen() as seen:
                    batch = seen.of(ids[first : first + size], columns, missing)
                if len(batch):
                    yield batch
            return
        while True:
            with self._seen() as seen:
                batch = seen.after(after, size, columns, missing)
            if not len(batch):
                return
            yield batch
            after = batch[self.id][-1].as_py()

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        with self._seen() as seen:
            return seen.of(ids, columns)

    def add_columns(self, columns: Sequence[Column]) -> None:
        for column in columns:
            check_name(column.name)
        with self._writing() as seen:
            seen.side.add(seen.connection, columns, text_ids=seen.text_ids())

    def drop_columns(self, names: Sequence[str]) -> None:
        with self._writing() as seen:
            seen.side.drop(seen.connection, names)

    def write(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        with self._writing() as seen:
            return self._put(seen, rows)

    def erase(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        with self._writing() as seen:
            ids = rows[self.id].to_pylist()
            same = self._unchanged(seen, ids, rows[TOKEN])
            gone = [key for key, stays in zip(ids, same.tolist(), strict=True) if stays]
            seen.side.take_away(seen.connection, gone)
            return len(gone)

    def tally(self, column: str) -> dict[str | None, int]:
        with self._seen() as seen:
            seen.side.column(column, self.name)
            beside, named = seen.side.table_of(column), seen.side.named(column)
            found = seen.connection.execute(
                f"SELECT {named}, count(*) FROM {beside} WHERE {named} IS NOT NULL AND "  # noqa: S608
                f"{beside}.id IN (SELECT {seen.id} FROM {seen.table}) GROUP BY 1"
            )
            counts: dict[str | None, int] = {str(value): count for value, count in found}
            if rest := seen.count() - sum(counts.values()):
                counts[None] = rest
            return counts

    def search(
        self,
        query: NDArray[np.float32],
        *,
        column: str,
        k: int,
        where: Where | None = None,
        missing: str | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        with self._seen() as seen:
            return search(
                seen,
                np.asarray(query, np.float32),
                self.distance,
                column=column,
                k=k,
                where=where,
                missing=missing,
                columns=columns,
            )

    def build_index(self, column: str) -> None:
        """Nothing to build: sqlite-vec goes through all vectors."""

    def version(self) -> str | None:
        """What SQLite counts is of the whole file, our own journal in it: one must look."""
        return None

    def activity(self) -> str | None:
        """Whether anybody has committed anything, by the file and its log as they are on disk."""
        out = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            try:
                found = path.stat()
            except OSError:
                continue
            out.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return repr(out)

    def duplicates(self) -> list[Id]:
        with self._seen() as seen:
            if seen.schema.vec0 is not None:
                return []
            found = seen.connection.execute(
                f"SELECT {seen.id} FROM {seen.table} GROUP BY {seen.ordered_id()} "  # noqa: S608
                f"HAVING count(*) > 1 OR {seen.id} IS NULL LIMIT {_NAMED}"
            )
            return [key for (key,) in found]

    def obstacles(self) -> list[Obstacle]:
        out = [
            Obstacle(f"{path} cannot be written")
            for path in (self.path, self.path.resolve().parent)
            if not os.access(path, os.W_OK)
        ]
        with self._seen() as seen:
            return out + find_obstacles(seen.schema, seen.connection)

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        with self._seen() as seen:
            begun = column in seen.side.columns
        if begun:
            with self._writing():
                moment = self._database.moment
            for rows in self.stream(columns):
                made = work(rows)
                if made is not None:
                    self.write(made)
            with self._writing() as seen:
                if self._database.moment != moment:
                    self._show_all(seen, columns, work)
                switch(seen, seen.side.column(column, self.name), drop)
        self.drop_columns(drop)
        return self.vector

    def withdraw(self, column: str) -> None:
        """The switch is one transaction: there is nothing in between to undo."""
        with self._seen() as seen:
            if column not in seen.side.columns:
                raise StoreError("the old vectors are gone", where=self.name)

    def get(self, key: str) -> str | None:
        with self._database.reading() as connection:
            return get_value(connection, self._table, key)

    def put(self, key: str, value: str | None) -> None:
        with self._database.writing() as connection:
            put_value(connection, self._table, key, value)

    @contextmanager
    def scratch(self, rows: int) -> Iterator[Scratch | None]:
        with folder_beside(self.path) as folder:
            copy = folder / "copy.db"
            # A file that is there and empty is a database without tables.
            copy.touch()
            self._copy(copy, rows)
            store = SqliteStore(
                f"sqlite:{copy}",
                self._table,
                id=self.id,
                vector=self.vector,
                distance=self.distance,
            )
            try:
                yield Scratch(store, store._bytes)
            finally:
                store.close()

    def _bytes(self) -> int:
        """Pages of the file, with those that are in its log so far and nowhere else."""
        with self._database.reading() as connection:
            asked = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            return int(connection.execute(asked).fetchone()[0])

    def _copy(self, path: Path, rows: int) -> None:
        """The table and its indexes, of some rows, in a file of their own."""
        with self._seen() as seen:
            schema = seen.schema
            (mode,) = seen.connection.execute("PRAGMA journal_mode").fetchone()
            indexes = seen.connection.execute(
                "SELECT sql FROM main.sqlite_schema WHERE type = 'index' AND tbl_name = ? "
                "COLLATE NOCASE AND sql IS NOT NULL",
                (self._table,),
            ).fetchall()
        names = ", ".join(map(quoted, schema.stored))
        with Database(path, self.name).plain() as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute("ATTACH ? AS app", (str(self.path.resolve()),))
            connection.execute(schema.sql)
            connection.execute(
                f"INSERT INTO main.{quoted(self._table)} ({names}) "  # noqa: S608
                f"SELECT {names} FROM app.{quoted(self._table)} LIMIT ?",
                (rows,),
            )
            for (sql,) in indexes:
                connection.execute(sql)

    def lock(self) -> AbstractContextManager[None]:
        return folder_lock(beside(self.path, f"{quote(self._table, safe='')}.lock"), self.name)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        with self._seen() as seen:
            schema, text_ids = seen.schema, seen.text_ids()
        before = Side(self._table, {})
        after = Side(self._table, {column.name: column for column in columns})
        write = ["BEGIN IMMEDIATE", *(after.putting(vectors=v) for v in (True, False)), "COMMIT"]
        drop = after.dropping([column.name for column in columns])
        shared = next(column for column in columns if column.kind == "vector")
        if schema.vec0 is None:
            replaced = [replacing_blobs(schema, after, shared)]
        else:
            replaced = rebuilding(schema, after, shared)
        return {
            "start": before.adding(columns, text_ids=text_ids),
            "forward": write,
            "backfill": write,
            "finish": ["BEGIN IMMEDIATE", *replaced, *drop, "COMMIT"],
            "rollback": drop,
        }

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _seen(self) -> Iterator[Seen]:
        """The table as it is at one moment."""
        # Before the look: what is committed after it was asked for is then seen, or makes it stale.
        moment = self._database.moment
        with self._database.reading() as connection:
            yield self._look(connection, moment)

    @contextmanager
    def _writing(self) -> Iterator[Seen]:
        """The table in a transaction that nobody else writes in."""
        with self._database.writing() as connection:
            yield self._look(connection, self._database.moment)

    def _look(self, connection: Connection, moment: int) -> Seen:
        schema = load_schema(connection, self._table, self.name)
        schema = resolve(schema, connection, self.id, self.vector, self.name)
        return Seen(connection, schema, Side.load(connection, self._table), self.name, moment)

    def _put(self, seen: Seen, rows: pa.RecordBatch) -> int:
        ids = rows[self.id].to_pylist()
        if TOKEN in rows.schema.names:
            same = self._unchanged(seen, ids, rows[TOKEN])
        else:
            there = seen.there(ids)
            same = np.array([key in there for key in ids], bool)
        if not same.all():
            rows = rows.filter(pa.array(same))
        kept = [key for key, stays in zip(ids, same.tolist(), strict=True) if stays]
        if kept:
            seen.side.put(seen.connection, kept, rows)
        return len(kept)

    def _unchanged(self, seen: Seen, ids: Sequence[Id], tokens: pa.Array) -> NDArray[np.bool_]:
        """Which rows are what they were when they were read."""
        hashes, moments = split_tokens(tokens)
        same = moments == seen.moment
        if not same.all():
            now = seen.hashes([key for key, known in zip(ids, same, strict=True) if not known])
            told = zip(ids, hashes.tolist(), same.tolist(), strict=True)
            same = np.array([known or now.get(key) == mark for key, mark, known in told], bool)
        return np.asarray(same)

    def _show_all(self, seen: Seen, columns: Sequence[str], work: Work) -> None:
        """Every row once more, while nobody else writes."""
        listed = None if seen.schema.vec0 is None else iter(_parts(seen.ids()))
        after: Id | None = None
        while True:
            if listed is not None:
                rows = seen.of(next(listed, []), columns)
            else:
                rows = seen.after(after, ROWS, columns, None)
            if not len(rows):
                return
            after = rows[self.id][-1].as_py()
            made = work(rows)
            if made is not None:
                self._put(seen, made)

    def _check_encoding(self, connection: Connection) -> None:
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        if encoding != "UTF-8":
            raise BadInput(
                f"keeps text as {encoding}, whose order is not that of code points",
                where=self.name,
                step="copy it into a database with PRAGMA encoding = 'UTF-8'",
            )


def _after(key: Id, other: Id) -> bool:
    return str(key) > str(other) if isinstance(other, str) else int(key) > int(other)


def _parts(ids: list[Id]) -> Iterator[list[Id]]:
    for first in range(0, len(ids), ROWS):
        yield ids[first : first + ROWS]
