"""PostgreSQL with pgvector.

Added columns live in a table beside the application's, one row per item: an UPDATE in the
application's own table would write a new version of the whole row, and with it an entry into every
index of the table, the HNSW index of the old vectors among them, which is dozens of times slower.
Batches come out as one value for each column, and go in by binary COPY (`pgwrite`): rows that are
gone, or were changed since they were read (another `xmin`), are left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.stores.address import safe_name
from crossfade.stores.contract import (
    ROWS,
    Change,
    Column,
    Compared,
    Description,
    Hit,
    Id,
    Obstacle,
    Scratch,
    Where,
    Work,
)
from crossfade.stores.names import PREFIX, check_where
from crossfade.stores.postgres.catalog import Added, Catalog, added_columns, read_catalog
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.dependants import find_dependants
from crossfade.stores.postgres.dry_run import outline
from crossfade.stores.postgres.index import tidy_and_index
from crossfade.stores.postgres.lock import end_worker, migration_lock, worker_lock
from crossfade.stores.postgres.promote import begin_anew, promote, withdraw
from crossfade.stores.postgres.rows import gather, stream
from crossfade.stores.postgres.search import Question, search, search_both
from crossfade.stores.postgres.state import change_value, forget, keep, value_of
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
        distance: Distance | None = None,
        patience: float = 30.0,
    ) -> None:
        self.name = safe_name(f"{url}#{table}")
        self._url = url
        self._pool = Pool(url, self.name, patience)
        try:
            self._catalog = self._look(unquote(table), id, vector)
        except BaseException:
            self.close()
            raise
        self.id, self.vector = self._catalog.id, self._catalog.vector
        self.distance: Distance = distance or self._catalog.distance or "cosine"

    @property
    def _statements(self) -> Statements:
        return Statements.of(self._catalog, self.distance)

    def describe(self) -> Description:
        statements = self._statements
        self._catalog = found = self._look(
            f"{statements.schema}.{statements.name}", self.id, self.vector
        )
        return Description(
            kind=self.kind,
            name=self.name,
            rows=self._pool.execute(statements.count())[0][0],
            id=self.id,
            id_type="integer" if statements.integer_ids else "text",
            vector=self.vector,
            dim=found.dims[self.vector],
            distance=self.distance,
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
            self._statements,
            self._catalog,
            columns,
            after=after,
            size=size,
            missing=missing is not None,
        )

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        statements, catalog = self._statements, self._catalog
        wanted = statements.rows_of(ids)
        found = self._pool.retry(lambda c: gather(c, statements, catalog, columns, wanted))
        return in_order(pa.Table.from_batches([found]), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        begin_anew(self._pool, self._statements)
        for statement in self._statements.add_columns(columns):
            self._pool.execute(statement)

    def drop_columns(self, names: Sequence[str]) -> None:
        # A process that was killed while it made the table may have left one without columns.
        if set(self._added()) <= set(names):
            self._pool.execute(self._statements.drop_side())
            return
        for name in names:
            self._pool.execute(self._statements.drop_added(name))

    def write(self, rows: pa.RecordBatch) -> int:
        return write(self._pool, self._statements, rows)

    def erase(self, rows: pa.RecordBatch) -> int:
        return erase(self._pool, self._statements, rows)

    def tally(self, column: str) -> dict[str | None, int]:
        found = dict(self._pool.execute(self._statements.tally(column)))
        rows = self._pool.execute(self._statements.count())[0][0]
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
        return search(self._pool, self._statements, self._catalog, question)

    def search_both(
        self,
        old: NDArray[np.float32],
        backward: NDArray[np.float32],
        shared: NDArray[np.float32] | None,
        *,
        column: str,
        state: str,
        k: int,
        where: Where | None = None,
        columns: Sequence[str] = (),
    ) -> Compared:
        question = Question(
            query=old,
            column=self.vector,
            k=k,
            where=check_where(where, tuple(self._catalog.kinds)),
            missing=False,
            columns=columns,
        )
        return search_both(
            self._pool,
            self._statements,
            self._catalog,
            question,
            backward=backward,
            shared=shared,
            column=column,
            state=state,
        )

    def build_index(self, column: str) -> None:
        statements, dim = self._statements, self._added()[column].dim
        self._pool.execute(statements.delete_orphans())

        def build(connection: Connection) -> None:
            tidy_and_index(connection, statements, column, dim)

        self._pool.retry(build)

    def obstacles(self) -> list[Obstacle]:
        statements, catalog = self._statements, self._catalog
        return self._pool.retry(lambda c: find_dependants(c, statements, catalog)).obstacles

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        statements = self._statements
        table = f"{statements.schema}.{statements.name}"
        self._catalog = self._look(table, self.id, self.vector)
        # All that was added goes with the table beside, `drop` among it.
        promote(self._pool, statements, self._catalog, column, columns, work)
        self._catalog = self._look(table, self.id, self.vector)
        return self.vector

    def withdraw(self, column: str) -> None:
        withdraw(self._pool, self._statements, column)

    def version(self) -> str | None:
        """None: PostgreSQL has no mark of a whole table."""
        return None

    def activity(self) -> str | None:
        """What the server has counted of rows that came, changed and went, which is late, and the
        last id."""
        found = self._pool.execute(self._statements.activity())
        return str(found[0][0]) if found else None

    def duplicates(self) -> list[Id]:
        """None: an id is refused that has no unique index."""
        return []

    def get(self, key: str) -> str | None:
        return value_of(self._pool, self._statements, key)

    def put(self, key: str, value: str | None) -> None:
        keep(self._pool, self._statements, key, value)

    def lock(self) -> AbstractContextManager[None]:
        return migration_lock(self._pool, self._statements)

    def change(self, key: str, change: Change) -> str | None:
        return change_value(self._pool, self._statements, key, change)

    def join(self, mark: str) -> AbstractContextManager[None]:
        return worker_lock(self._pool, self._statements, mark)

    def disown(self, mark: str) -> None:
        end_worker(self._pool, self._statements, mark)

    @contextmanager
    def scratch(self, rows: int) -> Iterator[Scratch | None]:
        own, name = self._statements, f"trial_of_crossfade_{secrets.token_hex(4)}"
        copied = replace(own, name=name)
        try:
            for statement in own.copy_some(name, rows):
                self._pool.execute(statement)
            store = PostgresStore(
                self._url,
                f"{quote(own.schema, safe='')}.{name}",
                id=self.id,
                vector=self.vector,
                distance=self.distance,
            )
            try:
                yield Scratch(store, lambda: int(self._pool.execute(copied.bytes())[0][0]))
            finally:
                store.close()
        finally:
            self._pool.execute(copied.drop_side())
            self._pool.execute(copied.drop_table())
            forget(self._pool, copied)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        statements, catalog = self._statements, self._catalog
        dim = columns[0].dim
        found = self._pool.retry(
            lambda c: find_dependants(c, statements, catalog, dim=dim, try_checks=False)
        )
        return outline(statements, self.vector, columns, found)

    def close(self) -> None:
        self._pool.close()

    def _look(self, table: str, id: str | None, vector: str | None) -> Catalog:
        return self._pool.retry(lambda c: read_catalog(c, table, id, vector, self.name))

    def _added(self) -> dict[str, Added]:
        statements = self._statements
        return self._pool.retry(lambda c: added_columns(c, statements))
