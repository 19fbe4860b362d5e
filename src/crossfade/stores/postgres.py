"""PostgreSQL with pgvector.

Added columns live in a table beside the application's, one row per item: an UPDATE in the
application's own table would write a new version of the whole row, and with it an entry into every
index of the table, the HNSW index of the old vectors among them, which is dozens of times slower.
Batches come out by binary COPY, go into a staging table by binary COPY, and from there in with one
INSERT … SELECT that joins the application's table: rows that are gone, or were changed since they
were read (another `xmin`), do not match. Every statement can be said twice, so a lost connection is
opened again and the statement repeated.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.stores.contract import ROWS, TOKEN, Column, Description, Hit, Id, Metric, Where
from crossfade.stores.locking import held_by_other
from crossfade.stores.names import PREFIX, check_where
from crossfade.stores.pgcatalog import KINDS, Catalog, read_catalog
from crossfade.stores.pgcopy import Kind, decode, encode
from crossfade.stores.rows import in_order

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise MissingExtra("psycopg", extra="pgvector", need="a PostgreSQL store") from error

_OPERATOR: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_CLASS: dict[Metric, str] = {
    "cosine": "vector_cosine_ops",
    "l2": "vector_l2_ops",
    "dot": "vector_ip_ops",
}
_SQL_TYPE = {"text": "text", "integer": "bigint"}
# pgvector's own limit for an HNSW index of float32 vectors.
_LARGEST_INDEXED = 2000
# What the application may wait for us where a change of its table needs a lock.
_LOCK_TIMEOUT = "3s"
T = TypeVar("T")


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
        self._url, self._patience = url, patience
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.name = f"postgresql://{host}{parts.path}#{table}"
        self._secret = unquote(parts.password or "")
        self._open: psycopg.Connection[Any] | None = None
        self._locked = False
        try:
            catalog = self._try(lambda c: read_catalog(c, unquote(table), id, vector, self.name))
        except BaseException:
            self.close()
            raise
        self._known = catalog
        self.id, self.vector = catalog.id, catalog.vector
        self.metric: Metric = metric or catalog.metric or "cosine"
        self._schema, self._name = catalog.schema, catalog.table
        self._id_type = catalog.id_type
        self._table = sql.Identifier(catalog.schema, catalog.table)
        short = catalog.table.encode()[:40].decode(errors="ignore")
        if short != catalog.table:
            digest = hashlib.blake2b(catalog.table.encode(), digest_size=4)
            short = f"{short}_{digest.hexdigest()}"
        self._beside = f"{PREFIX}{short}"
        self._side = sql.Identifier(catalog.schema, self._beside)
        self._state = sql.Identifier(catalog.schema, f"{PREFIX}state")

    def describe(self) -> Description:
        catalog = self._catalog()
        count = sql.SQL("SELECT count(*) FROM {}").format(self._table)
        return Description(
            kind=self.kind,
            name=self.name,
            rows=self._one(count)[0],
            id=self.id,
            id_type="integer" if self._integer_ids else "text",
            vector=self.vector,
            dim=catalog.dims[self.vector],
            metric=self.metric,
            columns=tuple(catalog.kinds),
            added=tuple(self._added()),
            indexed=tuple(catalog.indexed),
        )

    def stream(
        self, columns: Sequence[str], *, after: Id | None = None, size: int = ROWS
    ) -> Iterator[pa.RecordBatch]:
        key = sql.SQL("t.{}").format(sql.Identifier(self.id))
        order = key if self._integer_ids else sql.SQL('{}::text COLLATE "C"').format(key)
        while True:
            query = sql.SQL("{after} ORDER BY {order} LIMIT {size}").format(
                after=sql.SQL("")
                if after is None
                else sql.SQL("WHERE {} > {}").format(order, sql.Literal(after)),
                order=order,
                size=sql.Literal(size),
            )
            batch = self._copy_out(columns, query)
            if not len(batch):
                return
            yield batch
            after = batch[self.id][-1].as_py()

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        wanted = sql.SQL("WHERE t.{} = ANY({}::{}[])").format(
            sql.Identifier(self.id), sql.Literal(list(ids)), sql.SQL(self._id_type)
        )
        return in_order(pa.Table.from_batches([self._copy_out(columns, wanted)]), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        for statement in self._add_statements(columns):
            self._run(statement)

    def drop_columns(self, names: Sequence[str]) -> None:
        if not (there := self._added()):
            return
        if set(there) <= set(names):
            self._run(sql.SQL("DROP TABLE IF EXISTS {}").format(self._side))
            return
        for name in names:
            self._run(
                sql.SQL("ALTER TABLE {} DROP COLUMN IF EXISTS {}").format(
                    self._side, sql.Identifier(name)
                )
            )

    def write(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        added = self._added()
        names = [name for name in added if name in rows.schema.names]
        given = [self.id, *names, *([TOKEN] if TOKEN in rows.schema.names else [])]
        kinds: list[Kind] = ["integer" if self._integer_ids else "text"]
        kinds += [added[name] for name in names]
        kinds += ["integer"] * (len(given) - len(kinds))
        data = encode([rows[name] for name in given], kinds)

        def put(connection: psycopg.Connection[Any]) -> int:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(self._staging_statement())
                fields = sql.SQL(", ").join(map(sql.Identifier, given))
                into = sql.SQL("COPY crossfade_staging ({}) FROM STDIN (FORMAT BINARY)")
                with cursor.copy(into.format(fields)) as copy:
                    copy.write(data)
                cursor.execute(self._merge_statement(names, token=TOKEN in given))
                return cursor.rowcount

        return self._try(put)

    def tally(self, column: str) -> dict[str | None, int]:
        rows = self._run(
            sql.SQL(
                "SELECT s.{column}, count(*) FROM {table} t LEFT JOIN {side} s USING ({id}) "
                "GROUP BY 1"
            ).format(column=sql.Identifier(column), **self._names())
        )
        return dict(rows)

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
        aside = column.startswith(PREFIX)
        catalog = self._known
        terms = [
            sql.SQL("t.{} = ANY({})").format(sql.Identifier(name), sql.Literal(values))
            for name, values in check_where(where, tuple(catalog.kinds)).items()
        ]
        if missing is not None:
            terms.append(
                sql.SQL("NOT EXISTS (SELECT FROM {side} m WHERE m.{id} = t.{id})").format(
                    **self._names()
                )
            )
        home = sql.SQL("{side} s JOIN {table} t USING ({id})" if aside else "{table} t")
        vector = sql.SQL("{}.{}").format(sql.SQL("s" if aside else "t"), sql.Identifier(column))
        literal = "[" + ",".join(map(repr, np.asarray(query, np.float32).tolist())) + "]"
        distance = sql.SQL("({} {} {}::vector)").format(
            vector, sql.SQL(_OPERATOR[self.metric]), sql.Literal(literal)
        )
        if not aside and catalog.halves:
            distance = sql.SQL("({} {} {}::halfvec)").format(
                vector, sql.SQL(_OPERATOR[self.metric]), sql.Literal(literal)
            )
        terms.append(sql.SQL("{} IS NOT NULL").format(vector))
        statement = sql.SQL(
            "SELECT t.{id}{cast}, {distance}{values} FROM {home} WHERE {terms} "
            "ORDER BY {distance} LIMIT {k}"
        ).format(
            id=sql.Identifier(self.id),
            cast=sql.SQL("" if self._integer_ids else "::text"),
            distance=distance,
            values=sql.SQL("").join(
                sql.SQL(", t.{}").format(sql.Identifier(name)) for name in columns
            ),
            home=home.format(**self._names()),
            terms=sql.SQL(" AND ").join(terms),
            k=sql.Literal(k),
        )

        def ask(connection: psycopg.Connection[Any]) -> list[Any]:
            # An index looks at `ef_search` items and stops; k of them are wanted.
            connection.execute(f"SET hnsw.ef_search = {min(1000, max(100, 2 * k))}")
            return connection.execute(statement).fetchall()

        return [
            Hit(row[0], self._score(row[1]), dict(zip(columns, row[2:], strict=True)))
            for row in self._try(ask)
        ]

    def build_index(self, column: str) -> None:
        self._run(
            sql.SQL(
                "DELETE FROM {side} s "
                "WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id})"
            ).format(**self._names())
        )
        self._index(self._side, self._beside, column)
        self._run(sql.SQL("ANALYZE {}").format(self._side))

    def promote(self, column: str, drop: Sequence[str]) -> str:
        added = self._added()
        if column not in added:
            return self.vector
        self._run(
            sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} vector({})").format(
                self._table, sql.Identifier(column), sql.SQL(str(self._side_dims()[column]))
            ),
            lock=True,
        )
        for index in self._catalog().vector_indexes:
            if index != self._index_name(self._name, column):
                self._run(
                    sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(
                        sql.Identifier(self._schema, index)
                    )
                )
        while True:
            self._copy_over(column)
            self._index(self._table, self._name, column)
            if self._try(lambda c: self._switch(c, column)):
                self._catalog()
                return self.vector

    def get(self, key: str) -> str | None:
        if not self._there(f"{PREFIX}state"):
            return None
        query = sql.SQL("SELECT value FROM {} WHERE store = {} AND key = {}")
        rows = self._run(query.format(self._state, sql.Literal(self._name), sql.Literal(key)))
        return None if not rows else str(rows[0][0])

    def put(self, key: str, value: str | None) -> None:
        self._run(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (store text, key text, value text NOT NULL, "
                "PRIMARY KEY (store, key))"
            ).format(self._state)
        )
        place = (sql.Literal(self._name), sql.Literal(key))
        if value is None:
            query = sql.SQL("DELETE FROM {} WHERE store = {} AND key = {}")
            self._run(query.format(self._state, *place))
            return
        self._run(
            sql.SQL(
                "INSERT INTO {} VALUES ({}, {}, {}) "
                "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value"
            ).format(self._state, *place, sql.Literal(value))
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        self._try(self._take_lock)
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            with suppress(StoreError):
                self._try(lambda c: c.execute("SELECT pg_advisory_unlock(%s)", [self._lock_key()]))

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        names = [c.name for c in columns]
        merge = self._merge_statement(names, token=True)
        index = self._index_statement(self._side, self._beside, names[0])
        written = [
            "COPY crossfade_staging FROM STDIN (FORMAT BINARY)",
            self._text(merge),
        ]
        return {
            "start": [self._text(s) for s in self._add_statements(columns)],
            "forward": [*written, self._text(index)],
            "backfill": written,
            "finish": [
                f'ALTER TABLE "{self._name}" ADD COLUMN {names[0]} vector({columns[0].dim})',
                f"{names[0]} brought over from {self._beside}, in batches",
                self._text(self._index_statement(self._table, self._name, names[0])),
                f'ALTER TABLE "{self._name}" DROP COLUMN "{self.vector}"',
                f'ALTER TABLE "{self._name}" RENAME COLUMN {names[0]} TO "{self.vector}"',
                f"DROP TABLE {self._beside}",
            ],
            "rollback": [f"DROP TABLE {self._beside}"],
        }

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # The statements, each said in one place.

    def _add_statements(self, columns: Sequence[Column]) -> list[sql.Composed]:
        types = {c.name: _SQL_TYPE.get(c.kind, f"vector({c.dim})") for c in columns}
        make = sql.SQL("CREATE TABLE IF NOT EXISTS {side} ({id} {type} PRIMARY KEY)")
        out = [make.format(type=sql.SQL(self._id_type), **self._names())]
        for name, kind in types.items():
            add = sql.SQL("ALTER TABLE {side} ADD COLUMN IF NOT EXISTS {name} {type}")
            out.append(add.format(name=sql.Identifier(name), type=sql.SQL(kind), **self._names()))
        return out

    def _staging_statement(self) -> sql.Composed:
        """A table of this session's own that forgets its rows at the end of each transaction."""
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_SQL_TYPE.get(kind, "vector")))
            for name, kind in self._added().items()
        ]
        return sql.SQL(
            "CREATE TEMP TABLE IF NOT EXISTS crossfade_staging ({} {}, {}, {} bigint) "
            "ON COMMIT DELETE ROWS"
        ).format(
            sql.Identifier(self.id),
            sql.SQL("bigint" if self._integer_ids else "text"),
            sql.SQL(", ").join(columns),
            sql.Identifier(TOKEN),
        )

    def _merge_statement(self, names: Sequence[str], *, token: bool) -> sql.Composed:
        listed = sql.SQL(", ").join(map(sql.Identifier, names))
        return sql.SQL(
            "INSERT INTO {side} ({id}, {listed}) SELECT t.{id}, {taken} "
            "FROM crossfade_staging g JOIN {table} t ON t.{id} = g.{id}::{type}{unchanged} "
            "ON CONFLICT ({id}) DO UPDATE SET {sets}"
        ).format(
            listed=listed,
            taken=sql.SQL(", ").join(sql.SQL("g.{}").format(sql.Identifier(n)) for n in names),
            type=sql.SQL(self._id_type),
            unchanged=sql.SQL(f" WHERE t.xmin::text::bigint = g.{TOKEN}" if token else ""),
            sets=sql.SQL(", ").join(
                sql.SQL("{n} = EXCLUDED.{n}").format(n=sql.Identifier(n)) for n in names
            ),
            **self._names(),
        )

    def _index_statement(self, table: sql.Identifier, name: str, column: str) -> sql.Composed:
        return sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ({} {})").format(
            sql.Identifier(self._index_name(name, column)),
            table,
            sql.Identifier(column),
            sql.SQL(_CLASS[self.metric]),
        )

    # The pieces of the longer acts.

    def _copy_out(self, columns: Sequence[str], tail: sql.Composed) -> pa.RecordBatch:
        catalog, added = self._known, self._added()
        side_dims = self._side_dims() if any(c in added for c in columns) else {}
        wanted = [name for name in dict.fromkeys(columns) if name != self.id]
        kinds: list[Kind] = ["integer" if self._integer_ids else "text"]
        fields, dims = [], []
        for name in wanted:
            if name not in added and name not in catalog.kinds:
                raise BadInput(f"has no column {name!r}", where=self.name)
            kind = added.get(name) or catalog.kinds[name]
            kinds.append(kind)
            if kind == "vector":
                dims.append(side_dims[name] if name in added else catalog.dims[name])
            source = sql.SQL("s" if name in added else "t")
            cast = sql.SQL(KINDS[kind])
            fields.append(sql.SQL(", {}.{}::{}").format(source, sql.Identifier(name), cast))
        kinds.append("integer")
        statement = sql.SQL(
            "COPY (SELECT t.{id}::{id_cast}{fields}, t.xmin::text::bigint FROM {table} t {join} "
            "{tail}) TO STDOUT (FORMAT BINARY)"
        ).format(
            id_cast=sql.SQL(KINDS[kinds[0]]),
            fields=sql.SQL("").join(fields),
            join=sql.SQL("LEFT JOIN {side} s USING ({id})").format(**self._names())
            if any(c in added for c in wanted)
            else sql.SQL(""),
            tail=tail,
            **self._names(),
        )

        def fetch(connection: psycopg.Connection[Any]) -> bytes:
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                return b"".join(copy)

        arrays = decode(self._try(fetch), kinds, dims)
        return pa.RecordBatch.from_arrays(arrays, names=[self.id, *wanted, TOKEN])

    def _copy_over(self, column: str) -> None:
        """Bring an added vector into the application's table, some thousand rows at a time."""
        name = sql.Identifier(column)
        statement = sql.SQL(
            "UPDATE {table} t SET {column} = s.{column} FROM {side} s WHERE s.{id} = t.{id} AND "
            "t.{id} IN (SELECT a.{id} FROM {table} a JOIN {side} b USING ({id}) "
            "WHERE a.{column} IS DISTINCT FROM b.{column} LIMIT {rows})"
        ).format(column=name, rows=sql.Literal(ROWS), **self._names())
        while self._try(lambda c: c.execute(statement).rowcount):
            pass

    def _switch(self, connection: psycopg.Connection[Any], column: str) -> bool:
        """Old out, shared in, in one transaction; False if a row came that has no shared vector."""
        names = self._names() | {"column": sql.Identifier(column)}
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            connection.execute(sql.SQL("LOCK TABLE {table}").format(**names))
            behind = sql.SQL(
                "SELECT bool_or(t.{column} IS DISTINCT FROM s.{column}), bool_or(s.{id} IS NULL) "
                "FROM {table} t LEFT JOIN {side} s USING ({id})"
            ).format(**names)
            late, without = connection.execute(behind).fetchone() or (False, False)
            if without:
                raise StoreError(
                    "rows came that have no shared vector yet",
                    where=self.name,
                    step="run: crossfade migrate forward, then finish again",
                )
            if late:
                return False
            vector = sql.Identifier(self.vector)
            connection.execute(
                sql.SQL("ALTER TABLE {table} DROP COLUMN {vector}").format(vector=vector, **names)
            )
            connection.execute(
                sql.SQL("ALTER TABLE {table} RENAME COLUMN {column} TO {vector}").format(
                    vector=vector, **names
                )
            )
            connection.execute(sql.SQL("DROP TABLE {side}").format(**names))
        return True

    def _index(self, table: sql.Identifier, name: str, column: str) -> None:
        dims = self._side_dims()
        if dims.get(column, 0) > _LARGEST_INDEXED:
            return
        index = self._index_name(name, column)
        state = self._run(
            sql.SQL(
                "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
                "JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relname = {} AND n.nspname = {}"
            ).format(sql.Literal(index), sql.Literal(self._schema))
        )
        if state and state[0][0]:
            return
        # A build that was killed leaves an index that nobody may use.
        drop = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}")
        self._run(drop.format(sql.Identifier(self._schema, index)))
        self._run(self._index_statement(table, name, column))

    def _index_name(self, table: str, column: str) -> str:
        digest = hashlib.blake2b(f"{table}/{column}".encode(), digest_size=5).hexdigest()
        return f"{PREFIX}{digest}_hnsw"

    def _take_lock(self, connection: psycopg.Connection[Any]) -> None:
        got = connection.execute("SELECT pg_try_advisory_lock(%s)", [self._lock_key()]).fetchone()
        if got is None or not got[0]:
            raise held_by_other(self.name)

    def _lock_key(self) -> int:
        digest = hashlib.blake2b(f"{self._schema}.{self._name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    # What is known of the tables.

    @property
    def _integer_ids(self) -> bool:
        return self._id_type in ("smallint", "integer", "bigint")

    def _catalog(self) -> Catalog:
        found = self._try(
            lambda c: read_catalog(
                c, f"{self._schema}.{self._name}", self.id, self.vector, self.name
            )
        )
        self._known = found
        return found

    def _added(self) -> dict[str, Kind]:
        """The added columns and their kinds, in the order they were added."""
        rows = self._columns_beside()
        known: dict[str, Kind] = {"text": "text", "bigint": "integer"}
        return {name: known.get(kind, "vector") for name, kind in rows if name != self.id}

    def _side_dims(self) -> dict[str, int]:
        return {
            name: int(kind[len("vector(") : -1])
            for name, kind in self._columns_beside()
            if kind.startswith("vector(")
        }

    def _columns_beside(self) -> list[Any]:
        return self._run(
            sql.SQL(
                "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
                "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE n.nspname = {} AND c.relname = {} "
                "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
            ).format(sql.Literal(self._schema), sql.Literal(self._beside))
        )

    def _there(self, table: str) -> bool:
        query = sql.SQL("SELECT to_regclass({}) IS NOT NULL")
        name = sql.Identifier(self._schema, table).as_string(None)
        return bool(self._one(query.format(sql.Literal(name)))[0])

    def _names(self) -> dict[str, Any]:
        return {"table": self._table, "side": self._side, "id": sql.Identifier(self.id)}

    def _score(self, distance: float) -> float:
        # pgvector gives 1 − cosine, the distance itself, and minus the inner product.
        if self.metric == "l2":
            return -distance * distance
        return -distance if self.metric == "dot" else 1.0 - distance

    # Talking to the server.

    def _text(self, statement: sql.Composable) -> str:
        return statement.as_string(None)

    def _run(self, statement: sql.SQL | sql.Composed, *, lock: bool = False) -> list[Any]:
        def run(connection: psycopg.Connection[Any]) -> list[Any]:
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT if lock else '0'}'")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        return self._try(run)

    def _one(self, statement: sql.SQL | sql.Composed) -> Any:
        return self._run(statement)[0]

    def _try(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do it, over a new connection if the old one broke, until patience ends."""
        begin, pause = time.monotonic(), 0.1
        while True:
            try:
                return work(self._connection())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                timed_out = isinstance(error, psycopg.errors.LockNotAvailable)
                broken = self._open is None or self._open.closed or self._open.broken
                full = isinstance(error, psycopg.errors.DiskFull)
                waited = time.monotonic() - begin + pause > self._patience
                if full or waited or not (broken or timed_out):
                    raise self._told(error) from None
                if broken:
                    self._open = None
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            except psycopg.Error as error:
                raise self._told(error) from None

    def _connection(self) -> psycopg.Connection[Any]:
        if self._open is None or self._open.closed:
            self._open = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
            # Filters are honoured behind the index: go on searching until k rows pass them.
            with suppress(psycopg.Error):
                self._open.execute("LOAD 'vector'")
                self._open.execute("SET hnsw.iterative_scan = strict_order")
            if self._locked:
                self._take_lock(self._open)
        return self._open

    def _told(self, error: psycopg.Error) -> StoreError:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        for secret in (self._url, self._secret):
            if secret:
                text = text.replace(secret, "…")
        return StoreError(text, where=self.name, step="check the server, then repeat the command")
