"""PostgreSQL with pgvector.

Added columns live in a table beside the application's, one row per item: an UPDATE in the
application's own table would write a new version of the whole row, and with it an entry into every
index of the table, the HNSW index of the old vectors among them, which is dozens of times slower.
Batches come out as one value for each column, and go in by binary COPY (`pgwrite`): rows that are
gone, or were changed since they were read (another `xmin`), are left out. Every statement can be
said twice, so a lost connection is opened again and the statement repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.stores.address import safe_name
from crossfade.stores.contract import ROWS, TOKEN, Column, Description, Hit, Id, Metric, Where
from crossfade.stores.names import PREFIX, check_where
from crossfade.stores.pgcatalog import Catalog, columns_of, index_state, read_catalog
from crossfade.stores.pgcopy import Kind, empty, gathered, scattered
from crossfade.stores.pgpromote import promote
from crossfade.stores.pgsession import Connection, Session, sql
from crossfade.stores.pgstate import keep, value_of
from crossfade.stores.pgstatements import Said, Statements
from crossfade.stores.pgwords import statements
from crossfade.stores.pgwrite import Writing
from crossfade.stores.rows import in_order, one_batch

# pgvector's own limit for an HNSW index of float32 vectors.
_LARGEST_INDEXED = 2000
_LARGEST_BATCH = 256 << 20
# What the server puts together for one column at a time: twice as fast as four times as much.
_LARGEST_VALUE = 8 << 20
_KINDS: dict[str, Kind] = {"text": "text", "bigint": "integer"}


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
        self._session = Session(url, self.name, patience)
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
            rows=self._session.run(words.say("SELECT count(*) FROM {table}"))[0][0],
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
        self, columns: Sequence[str], *, after: Id | None = None, size: int = ROWS
    ) -> Iterator[pa.RecordBatch]:
        dims = self._catalog.dims | self._dims()
        width = 100 + sum(4 * dims.get(name, 0) for name in columns)
        size = min(size, max(1, _LARGEST_BATCH // width))
        step = -(-size // -(-size // max(1, _LARGEST_VALUE // width)))
        # A connection of its own: the reader of a stream writes while the next batch comes in.
        session = self._session.another()
        try:
            pieces: list[pa.RecordBatch] = []
            while True:
                room = size - sum(map(len, pieces))
                tail = self._words.after(after, min(step, room))
                piece = self._gather(session, columns, tail, after, streamed=True)
                pieces.append(piece)
                rows = size - room + len(piece)
                if rows and (not len(piece) or rows >= size):
                    yield one_batch(pa.Table.from_batches(pieces))
                    pieces = []
                if not len(piece):
                    return
                after = piece[self.id][-1].as_py()
        finally:
            session.close()

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        wanted = self._words.say("WHERE t.{id} = ANY({ids}::{type}[])", ids=sql.Literal(list(ids)))
        found = self._gather(self._session, columns, wanted)
        return in_order(pa.Table.from_batches([found]), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        for statement in self._words.add(columns):
            self._session.run(statement)

    def drop_columns(self, names: Sequence[str]) -> None:
        if not (there := self._added()):
            return
        if set(there) <= set(names):
            self._session.run(self._words.say("DROP TABLE IF EXISTS {side}"))
            return
        for name in names:
            drop = "ALTER TABLE {side} DROP COLUMN IF EXISTS {name}"
            self._session.run(self._words.say(drop, name=sql.Identifier(name)))

    def write(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        return self._session.doing(Writing(self._words, self._added(), rows))

    def tally(self, column: str) -> dict[str | None, int]:
        # Ids of the application's table come from its index, without a look at its vectors.
        count = (
            "SELECT s.{name}, count(*) FROM {side} s "
            "WHERE EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id}) GROUP BY 1"
        )
        found = dict(self._session.run(self._words.say(count, name=sql.Identifier(column))))
        rows = self._session.run(self._words.say("SELECT count(*) FROM {table}"))[0][0]
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
        statement = self._words.search(
            "[" + ",".join(map(repr, np.asarray(query, np.float32).tolist())) + "]",
            column,
            k,
            half=self._catalog.halves and not column.startswith(PREFIX),
            where=check_where(where, tuple(self._catalog.kinds)),
            missing=missing is not None,
            columns=columns,
        )

        def ask(connection: Connection) -> list[Any]:
            # An index looks at `ef_search` items and stops; k of them are wanted.
            connection.execute(f"SET hnsw.ef_search = {min(1000, max(100, 2 * k))}")
            return connection.execute(statement).fetchall()

        return [
            Hit(row[0], self._score(row[1]), dict(zip(columns, row[2:], strict=True)))
            for row in self._session.doing(ask)
        ]

    def build_index(self, column: str) -> None:
        orphans = (
            "DELETE FROM {side} s WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id})"
        )
        self._session.run(self._words.say(orphans))
        self._index(self._words.beside, column)
        self._session.run(self._words.say("ANALYZE {side}"))

    def promote(self, column: str, drop: Sequence[str]) -> str:
        if column in self._added():
            words = self._words
            self._catalog = self._look(f"{words.schema}.{words.name}", self.id, self.vector)
            promote(
                self._session,
                words,
                column,
                self.vector,
                self._dims()[column],
                self._catalog.vector_indexes,
                lambda name: self._index(words.name, name),
            )
            self._catalog = self._look(f"{words.schema}.{words.name}", self.id, self.vector)
        return self.vector

    def get(self, key: str) -> str | None:
        return value_of(self._session, self._words, key)

    def put(self, key: str, value: str | None) -> None:
        keep(self._session, self._words, key, value)

    def lock(self) -> AbstractContextManager[None]:
        return self._session.lock(f"{self._words.schema}.{self._words.name}")

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        return statements(self._words, self.vector, columns)

    def close(self) -> None:
        self._session.close()

    def _look(self, table: str, id: str | None, vector: str | None) -> Catalog:
        return self._session.doing(lambda c: read_catalog(c, table, id, vector, self.name))

    def _gather(
        self,
        session: Session,
        columns: Sequence[str],
        tail: Said,
        last: Id | None = None,
        *,
        streamed: bool = False,
    ) -> pa.RecordBatch:
        # Over the connection of the reader: the other one may be busy with writing.
        known, added = self._catalog, self._added(session)
        wanted = [name for name in dict.fromkeys(columns) if name != self.id]
        for name in wanted:
            if name not in added and name not in known.kinds:
                raise BadInput(f"has no column {name!r}", where=self.name)
        kinds: dict[str, tuple[Kind, bool]] = {
            name: (added.get(name) or known.kinds[name], name in added) for name in wanted
        }
        aside = [name for name in wanted if name in added]
        dims = known.dims | (self._dims(session) if aside else {})
        first = streamed and self._words.integer_ids
        if aside and first and not session.run(self._words.first_beside(last)):
            # Nothing is there to be joined, the first time around.
            kinds = {name: kind for name, kind in kinds.items() if name not in aside}
        statement = self._words.gather(kinds, tail, last)
        found = session.doing(lambda c: c.execute(statement, binary=True).fetchone())
        travel: list[Kind] = [self._words.id_kind, *(kind for kind, _ in kinds.values()), "integer"]
        values = iter(found or ())
        arrays = {}
        for name, kind in zip([self.id, *kinds, TOKEN], travel, strict=True):
            parts = [next(values) for _ in gathered("", kind)]
            arrays[name] = scattered(parts, kind, dims.get(name, 0))
        for name in aside:
            arrays.setdefault(name, empty(len(arrays[self.id]), added[name], dims.get(name, 0)))
        return pa.RecordBatch.from_pydict({n: arrays[n] for n in [self.id, *wanted, TOKEN]})

    def _index(self, table: str, column: str) -> None:
        if self._dims().get(column, 0) > _LARGEST_INDEXED:
            return
        words = self._words
        name = words.index_name(table, column)
        state = self._session.doing(lambda c: index_state(c, words.schema, name))
        if state == "ready":
            return
        # A build that was killed leaves an index that nobody may use.
        self._session.run(words.drop_index(name))
        self._session.run(words.index(table, column))

    def _added(self, session: Session | None = None) -> dict[str, Kind]:
        """The added columns and their kinds, in the order they were added."""
        return {n: _KINDS.get(kind, "vector") for n, kind in self._beside(session) if n != self.id}

    def _dims(self, session: Session | None = None) -> dict[str, int]:
        return {
            name: int(kind[len("vector(") : -1])
            for name, kind in self._beside(session)
            if kind.startswith("vector(")
        }

    def _beside(self, session: Session | None = None) -> list[Any]:
        words = self._words
        return (session or self._session).doing(lambda c: columns_of(c, words.schema, words.beside))

    def _score(self, distance: float) -> float:
        # pgvector gives 1 − cosine, the distance itself, and minus the inner product.
        if self.metric == "l2":
            return -distance * distance
        return -distance if self.metric == "dot" else 1.0 - distance
