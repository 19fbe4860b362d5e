"""PostgreSQL with pgvector.

Added columns live in a table beside the application's, one row per item: an UPDATE in the
application's own table would write a new version of the whole row, and with it an entry into every
index of the table, the HNSW index of the old vectors among them, which is dozens of times slower.
Batches come out as one value for each column, and go in by binary COPY (`pgwrite`): rows that are
gone, or were changed since they were read (another `xmin`), are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.stores.address import safe_name
from crossfade.stores.contract import (
    ROWS,
    Column,
    Description,
    Hit,
    Id,
    Metric,
    Obstacle,
    Where,
    Work,
)
from crossfade.stores.names import PREFIX, check_where
from crossfade.stores.postgres.catalog import Added, Catalog, added_columns, read_catalog
from crossfade.stores.postgres.connection import Connection, Pool, sql
from crossfade.stores.postgres.dependants import find_dependants
from crossfade.stores.postgres.dry_run import statements
from crossfade.stores.postgres.index import tidy_and_index
from crossfade.stores.postgres.lock import migration_lock
from crossfade.stores.postgres.promote import begin_anew, promote, withdraw
from crossfade.stores.postgres.rows import gather, rows_of, stream
from crossfade.stores.postgres.search import Question, search
from crossfade.stores.postgres.state import keep, value_of
from crossfade.stores.postgres.statements import Statements
from crossfade.stores.postgres.write import erase, write
from crossfade.stores.rows import in_order


class PostgresStore:
    """A table of a PostgreSQL database."""

    kind = "pgvector"

    def __init__(
        self,
        url: str,
        table: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        metric: Metric | None = None,
        patience: float = 30.0,
    ) -> None:
        self.name = safe_name(f"{url}#{table}")
        self._pool = Pool(url, self.name, patience)
        try:
            self._catalog = self._look(unquote(table), id, vector)
        except BaseException:
            self.close()
            raise
        self.id, self.vector = self._catalog.id, self._catalog.vector
        self.metric: Metric = metric or self._catalog.metric or "cosine"

    @property
    def _words(self) -> Statements:
        return Statements.of(self._catalog, self.metric)

    def describe(self) -> Description:
        words = self._words
        self._catalog = found = self._look(f"{words.schema}.{words.name}", self.id, self.vector)
        return Description(
            kind=self.kind,
            name=self.name,
            rows=self._pool.execute(words.say("SELECT count(*) FROM {table}"))[0][0],
            id=self.id,
            id_type="integer" if words.integer_ids else "text",
            vector=self.vector,
            dim=found.dims[self.vector],
            metric=self.metric,
            columns=tuple(found.kinds),
            added=tuple(self._added()),
            indexed=found.indexed,
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return stream(
            self._pool,
            self._words,
            self._catalog,
            columns,
            after=after,
            size=size,
            missing=missing is not None,
        )

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        words, catalog = self._words, self._catalog
        wanted = rows_of(words, ids)
        found = self._pool.retry(lambda c: gather(c, words, catalog, columns, wanted))
        return in_order(pa.Table.from_batches([found]), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        begin_anew(self._pool, self._words)
        for statement in self._words.add(columns):
            self._pool.execute(statement)

    def drop_columns(self, names: Sequence[str]) -> None:
        if not (there := self._added()):
            return
        if set(there) <= set(names):
            self._pool.execute(self._words.say("DROP TABLE IF EXISTS {side}"))
            return
        for name in names:
            drop = "ALTER TABLE {side} DROP COLUMN IF EXISTS {name}"
            self._pool.execute(self._words.say(drop, name=sql.Identifier(name)))

    def write(self, rows: pa.RecordBatch) -> int:
        return write(self._pool, self._words, rows)

    def erase(self, rows: pa.RecordBatch) -> int:
        return erase(self._pool, self._words, rows)

    def tally(self, column: str) -> dict[str | None, int]:
        # Ids of the application's table come from its index, without a look at its vectors.
        count = (
            "SELECT s.{name}, count(*) FROM {side} s "
            "WHERE EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id}) GROUP BY 1"
        )
        found = dict(self._pool.execute(self._words.say(count, name=sql.Identifier(column))))
        rows = self._pool.execute(self._words.say("SELECT count(*) FROM {table}"))[0][0]
        without = rows - sum(found.values()) + found.pop(None, 0)
        return found | ({None: without} if without > 0 else {})

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
        if missing is not None and column.startswith(PREFIX):
            # What has nothing beside has no vector there either.
            return []
        question = Question(
            query=query,
            column=column,
            k=k,
            where=check_where(where, tuple(self._catalog.kinds)),
            missing=missing is not None,
            columns=columns,
        )
        return search(self._pool, self._words, self._catalog, question)

    def build_index(self, column: str) -> None:
        words, dim = self._words, self._added()[column].dim
        orphans = (
            "DELETE FROM {side} s WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id})"
        )
        self._pool.execute(words.say(orphans))

        def build(connection: Connection) -> None:
            tidy_and_index(connection, words, column, dim)

        self._pool.retry(build)

    def obstacles(self) -> list[Obstacle]:
        words, catalog = self._words, self._catalog
        return self._pool.retry(lambda c: find_dependants(c, words, catalog)).obstacles

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        words = self._words
        table = f"{words.schema}.{words.name}"
        self._catalog = self._look(table, self.id, self.vector)
        # All that was added goes with the table beside, `drop` among it.
        promote(self._pool, words, self._catalog, column, columns, work)
        self._catalog = self._look(table, self.id, self.vector)
        return self.vector

    def withdraw(self, column: str) -> None:
        withdraw(self._pool, self._words, column)

    def version(self) -> str | None:
        """None: PostgreSQL has no mark of a whole table."""
        return None

    def activity(self) -> str | None:
        """What the server has counted of rows that came, changed and went, about a second late."""
        words = self._words
        count = sql.SQL(
            "SELECT pg_stat_get_tuples_inserted(c) || '/' || pg_stat_get_tuples_updated(c) || '/' "
            "|| pg_stat_get_tuples_deleted(c) FROM (SELECT {}::regclass::oid AS c) AS t "
            "WHERE current_setting('track_counts')::boolean"
        ).format(sql.Literal(words.say("{table}").as_string(None)))
        found = self._pool.execute(count)
        return str(found[0][0]) if found else None

    def duplicates(self) -> list[Id]:
        """None: an id is refused that has no unique index."""
        return []

    def get(self, key: str) -> str | None:
        return value_of(self._pool, self._words, key)

    def put(self, key: str, value: str | None) -> None:
        keep(self._pool, self._words, key, value)

    def lock(self) -> AbstractContextManager[None]:
        return migration_lock(self._pool, self._words)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        return statements(self._words, self.vector, columns)

    def close(self) -> None:
        self._pool.close()

    def _look(self, table: str, id: str | None, vector: str | None) -> Catalog:
        return self._pool.retry(lambda c: read_catalog(c, table, id, vector, self.name))

    def _added(self) -> dict[str, Added]:
        words = self._words
        return self._pool.retry(lambda c: added_columns(c, words))
