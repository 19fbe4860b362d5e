"""How pgvector's shared vectors become the application's only ones.

Beside the old column the table gets one for the new vectors, and every row its vector, in batches
so small that nobody waits for them and without waiting for anybody. Indexes are built there while
those of the old column stand. Then everything that came or changed meanwhile is looked at, again
and again until there is little left of it, and only then the table is taken for a moment: what is
left is looked at, the old column goes and the new one gets its name, in one transaction.

Whoever locks both the table beside and the application's begins with the one beside; searches do
the same, so that neither can wait for the other in a circle. A lock that is not to be had at once
is given up and tried again later, for others queue behind it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg
import pyarrow as pa

from crossfade.errors import StoreError
from crossfade.stores.contract import ROWS, Id, Work
from crossfade.stores.names import PREFIX
from crossfade.stores.postgres.catalog import Catalog, added_columns
from crossfade.stores.postgres.connection import Connection, Pool, sql
from crossfade.stores.postgres.dependants import Dependants, fails_check, find_dependants
from crossfade.stores.postgres.index import build_index, index_is_valid
from crossfade.stores.postgres.rows import gather, rows_of, stream
from crossfade.stores.postgres.state import keep, put_value, value_of
from crossfade.stores.postgres.statements import Said, Statements
from crossfade.stores.postgres.write import write, write_within

PROMOTED = "promoted"
# How long the application may queue behind a lock that we wait for, and how long we go on trying.
_LOCK_TIMEOUT = "80ms"
_LOCK_PATIENCE = 600.0
_LOCK_PAUSE = 0.5
_CALM_TIMEOUT = "10s"
# Rows are locked for about this long at a time.
_MOMENT = 0.05
# Pages of the table that are gone through together, a row of each at a time.
_PAGES = 4096
# Fewer rows than this are left to the moment when the table is locked; after so many attempts, any.
_FEW, _ATTEMPTS = 200, 20
_IDS = 50_000
T = TypeVar("T")


def promote(
    pool: Pool, words: Statements, catalog: Catalog, column: str, columns: Sequence[str], work: Work
) -> None:
    """Let `column` of the table beside take the place of the vectors; see `Store.promote`."""
    if column in pool.retry(lambda c: added_columns(c, words)):
        _Promotion(pool, words, catalog, column, columns, work).run()
    _settle_constraints(pool, words, catalog)


def withdraw(pool: Pool, words: Statements, column: str) -> None:
    """Take the new column from the application's table again; the one beside stays."""
    if value_of(pool, words, PROMOTED) is not None:
        raise StoreError(
            "the old vectors are gone already",
            where=pool.name,
            step="finish the migration, or restore a backup",
        )
    drop = words.say(
        "ALTER TABLE {table} DROP COLUMN IF EXISTS {column}", column=sql.Identifier(column)
    )
    if pool.retry(lambda c: _type_of(c, words, column)) is not None:
        briefly(pool, words, lambda c: c.execute(drop))


def _type_of(connection: Connection, words: Statements, column: str) -> str | None:
    """The type of a column of the application's table, if there is one."""
    query = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped"
    )
    table = words.say("{table}").as_string(None)
    found = connection.execute(query, [table, column]).fetchone()
    return None if found is None else str(found[0])


def briefly(
    pool: Pool,
    words: Statements,
    act: Callable[[Connection], T],
    *,
    first: Iterable[Said] = (),
    done: Callable[[Connection], T | None] = lambda _: None,
) -> T:
    """Do it in a transaction that has the application's table for itself.

    `first` are statements that lock other things before it, in this order. `done` gives what `act`
    would if it was done before, by a connection that broke and could not say so.
    """

    # A vacuum gives way to whoever waits a second for it. This lock is in nobody else's way, and
    # keeps the next one off.
    calm = words.say("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")
    locks = [*first, words.say("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")]
    begin = time.monotonic()

    def work(connection: Connection) -> T:
        if (before := done(connection)) is not None:
            return before
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_CALM_TIMEOUT}'")
            connection.execute(calm)
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            while not _locked(connection, locks):
                if time.monotonic() - begin > _LOCK_PATIENCE:
                    raise psycopg.errors.LockNotAvailable
                # The application, which queued behind us, has its turn.
                time.sleep(_LOCK_PAUSE)
            connection.execute("SET LOCAL lock_timeout = 0")
            return act(connection)

    while True:
        try:
            return pool.retry(work, wait_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() - begin > _LOCK_PATIENCE:
                raise StoreError(
                    f"cannot have the table for a moment: {_holder(pool, words)}",
                    where=pool.name,
                    step="end that transaction, then repeat the command",
                ) from None


def _locked(connection: Connection, locks: Iterable[Said]) -> bool:
    """All of them, or none."""
    try:
        with connection.transaction():
            for lock in locks:
                connection.execute(lock)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _holder(pool: Pool, words: Statements) -> str:
    """Who has had the table the longest."""
    query = """
        SELECT a.pid, a.usename, a.state, a.xact_start FROM pg_locks l
        JOIN pg_stat_activity a USING (pid)
        WHERE l.relation = to_regclass(%s) AND l.granted AND a.pid <> pg_backend_pid()
        ORDER BY a.xact_start LIMIT 1
    """
    table = words.say("{table}").as_string(None)
    found = pool.retry(lambda c: c.execute(query, [table]).fetchone())
    if found is None:
        return "others come and go too fast"
    pid, user, state, since = found
    return f"process {pid} of {user!r} ({state}) has held it since {since:%H:%M:%S}"


class Pace:
    """How many rows are brought over at a time, so that they are locked for a moment only.

    A row whose page has no room costs an entry in every index, a hundred times what others do, and
    nobody can tell beforehand. So what a row has cost at most is remembered, and forgotten slowly.
    """

    FEWEST, MOST, FORGOTTEN = 10, 2000, 0.999

    def __init__(self) -> None:
        self.rows = 2 * self.FEWEST
        self._dearest = 0.0

    def measure(self, rows: int, took: float) -> None:
        """Take note of how long a batch took."""
        took = max(took, 1e-4)
        self._dearest = max(self._dearest * self.FORGOTTEN, took / rows)
        wanted = min(2.0 * self.rows, self.rows * _MOMENT / took, 2 * _MOMENT / self._dearest)
        self.rows = int(min(self.MOST, max(self.FEWEST, wanted)))


class _Promotion:
    """One promote on its way."""

    def __init__(
        self,
        pool: Pool,
        words: Statements,
        catalog: Catalog,
        column: str,
        columns: Sequence[str],
        work: Work,
    ) -> None:
        self.pool, self.words, self.catalog, self.column = pool, words, catalog, column
        self.columns, self.work = columns, work
        self.name, self.old = sql.Identifier(column), sql.Identifier(catalog.vector)
        self.dim = pool.retry(lambda c: added_columns(c, words))[column].dim
        self.found = self._dependants(try_checks=True)
        self.locked: set[Id] = set()
        """Rows that somebody had locked when they were to be brought over."""
        self.pace = Pace()

    def run(self) -> None:
        self._add_column()
        self._bring_pages()
        while ids := self._behind():
            if not self._bring(ids) and self.locked.issuperset(ids):
                break
        self._index()
        horizon = self._look_at_all()
        self._check_all(horizon)
        for attempt in range(_ATTEMPTS + 1):
            horizon, looked = self._look_since(horizon)
            if looked > _FEW and attempt < _ATTEMPTS:
                continue
            self.found = self._dependants(try_checks=False)
            self._index()
            if self._switch(horizon, last=attempt == _ATTEMPTS):
                return
        raise StoreError(
            "what hangs on the vectors changes all the time",
            where=self.pool.name,
            step="nothing was taken away; repeat the command when the table is calmer",
        )

    def _dependants(self, *, try_checks: bool, connection: Connection | None = None) -> Dependants:
        def find(connection: Connection) -> Dependants:
            return find_dependants(connection, self.words, self.catalog, try_checks=try_checks)

        found = self.pool.retry(find) if connection is None else find(connection)
        final = [one.cause for one in found.obstacles if one.final]
        if final:
            raise StoreError(
                f"cannot make the new vectors the only ones: {'; '.join(final)}",
                where=self.pool.name,
                step="nothing was taken away; see to it, then repeat the command",
            )
        return found

    def _type(self) -> Said:
        return sql.SQL("{}({})").format(sql.SQL(self.found.column.type), sql.SQL(str(self.dim)))

    def _add_column(self) -> None:
        """Like the old one in everything that is not its values."""
        column, table = self.found.column, self.words.say("{table}")
        storage = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}[column.storage]
        alter = ["ALTER COLUMN {name} SET STORAGE " + storage]
        if column.compression:
            method = {"p": "pglz", "l": "lz4"}[column.compression]
            alter.append(f"ALTER COLUMN {{name}} SET COMPRESSION {method}")
        if column.statistics >= 0:
            alter.append(f"ALTER COLUMN {{name}} SET STATISTICS {column.statistics}")
        if column.options:
            alter.append(f"ALTER COLUMN {{name}} SET ({', '.join(column.options)})")
        statements = [
            self.words.say(
                "ALTER TABLE {table} ADD COLUMN {name} {kind}", name=self.name, kind=self._type()
            ),
            *(self.words.say("ALTER TABLE {table} " + one, name=self.name) for one in alter),
            *(grant.say(table, self.column) for grant in column.grants),
        ]
        if column.comment:
            say = "COMMENT ON COLUMN {table}.{name} IS {comment}"
            told = sql.Literal(column.comment)
            statements.append(self.words.say(say, name=self.name, comment=told))

        drop = self.words.say("ALTER TABLE {table} DROP COLUMN {name}", name=self.name)

        def add(connection: Connection) -> None:
            there = _type_of(connection, self.words, self.column)
            if there == self._type().as_string(None):
                return
            # Another one was left by a migration to another dimension.
            for one in statements if there is None else [drop, *statements]:
                connection.execute(one)

        there = self.pool.retry(lambda c: _type_of(c, self.words, self.column))
        if there != self._type().as_string(None):
            briefly(self.pool, self.words, add)

    @property
    def _wanted(self) -> Said:
        """What a row should have in the new column: of a null or a zero vector nothing can be made,
        and a column that has to have something gets zeros of the new dimension."""
        shared = sql.SQL("s.{}::{}").format(self.name, self._type())
        if not self.found.column.not_null:
            return shared
        return sql.SQL(
            "CASE WHEN s.{} IS NULL AND vector_norm(t.{}::vector) = 0 "
            "THEN array_fill(0, ARRAY[{}])::{} ELSE {} END"
        ).format(self.name, self.old, sql.Literal(self.dim), self._type(), shared)

    def _bring_pages(self) -> None:
        """Every row that has nothing yet, page by page.

        A new version of a row that finds room on its own page needs no entries in indexes, the old
        vectors' among them, which cost most. A page has room once the version before it has been
        cleared away. So a stretch of pages is gone through several times, one row of each page at a
        time: the first row of a full page moves elsewhere, the others take its place by turns.
        """
        size = "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int"
        table = self.words.say("{table}").as_string(None)
        found = self.pool.retry(lambda c: c.execute(size, [table]).fetchone())
        pages = int(found[0]) if found else 0
        for first in range(0, pages, _PAGES):
            due = self.words.say(
                "SELECT t.{id}{cast}, row_number() OVER (PARTITION BY "
                "(t.ctid::text::point)[0] ORDER BY t.ctid) FROM {table} t "
                "WHERE t.ctid >= {first}::tid AND t.ctid < {last}::tid AND t.{name} IS NULL "
                "ORDER BY 2, t.ctid",
                cast=self._cast,
                first=sql.Literal(f"({first},0)"),
                last=sql.Literal(f"({first + _PAGES},0)"),
                name=self.name,
            )
            self._bring([key for key, _ in self.pool.execute(due)])

    @property
    def _cast(self) -> Said:
        return self.words.say("" if self.words.integer_ids else "::text")

    def _behind(self) -> list[Id]:
        """Rows, at one moment, that have another vector than they should have."""
        ask = self.words.say(
            "SELECT t.{id}{cast} FROM {side} s RIGHT JOIN {table} t USING ({id}) "
            "WHERE t.{name} IS DISTINCT FROM {wanted} LIMIT {most}",
            cast=self._cast,
            name=self.name,
            wanted=self._wanted,
            most=sql.Literal(_IDS),
        )
        return [key for (key,) in self.pool.execute(ask)]

    def _bring(self, ids: Sequence[Id]) -> int:
        """Vectors from the table beside into these rows, but for those that others have locked.

        Those are remembered. Nobody is waited for, so two transactions of the application that
        change the same rows in any order never find us between them.
        """
        brought, at = 0, 0
        while at < len(ids):
            some = ids[at : at + self.pace.rows]
            at += len(some)
            begin = time.monotonic()
            free, changed = self.pool.retry(partial(self._bring_some, ids=some))
            brought += changed
            self.locked.difference_update(free)
            self.locked.update(set(some) - free)
            self.pace.measure(len(some), time.monotonic() - begin)
        return brought

    def _bring_some(self, connection: Connection, ids: Sequence[Id]) -> tuple[set[Id], int]:
        """One small transaction: the rows that were free, and how many of them were changed."""
        lock = self.words.say(
            "SELECT t.{id}{cast} FROM {table} t {these} FOR NO KEY UPDATE SKIP LOCKED",
            cast=self._cast,
            these=rows_of(self.words, ids),
        )
        with connection.transaction():
            # Lost with the server, it is done again.
            connection.execute("SET LOCAL synchronous_commit = off")
            free = {key for (key,) in connection.execute(lock).fetchall()}
            return free, self._copy_over(connection, list(free)) if free else 0

    def _copy_over(self, connection: Connection, ids: Sequence[Id]) -> int:
        """Vectors into rows that nobody else can change."""
        if self.found.may_replicate:
            # The application's triggers are about its own changes.
            connection.execute("SET LOCAL session_replication_role = replica")
        change = self.words.say(
            "UPDATE {table} t SET {name} = q.wanted FROM (SELECT t.{id}, {wanted} AS wanted "
            "FROM {side} s RIGHT JOIN {table} t USING ({id}) {these}) q "
            "WHERE q.{id} = t.{id} AND t.{name} IS DISTINCT FROM q.wanted",
            name=self.name,
            wanted=self._wanted,
            these=rows_of(self.words, ids),
        )
        return int(connection.execute(change).rowcount)

    def _indexes(self) -> Iterator[tuple[str, Any]]:
        """What each new index is called until it gets the name of the one it takes the place of."""
        for index in self.found.indexes:
            text = index.create(self.words.name, self.words.say("{table}"), self.column)
            what = f"{index.name}/{text.as_string(None)}"
            digest = hashlib.blake2b(what.encode(), digest_size=5).hexdigest()
            yield f"{PREFIX}{digest}_{index.kind}", index

    def _index(self) -> None:
        table = self.words.say("{table}")
        for name, index in self._indexes():

            def build(connection: Connection, name: str = name, index: Any = index) -> None:
                rows = connection.execute(
                    "SELECT greatest(reltuples, 0)::bigint FROM pg_class "
                    "WHERE oid = to_regclass(%s)",
                    [table.as_string(None)],
                ).fetchone()
                build_index(
                    connection,
                    self.words.schema,
                    name,
                    lambda named: index.create(named, table, self.column),
                    rows=rows[0] if rows else 0,
                    dim=self.dim,
                )

            self.pool.retry(build)

    def _horizon(self, connection: Connection) -> str:
        """Whatever is not older than this may not have been seen by those who look from now on."""
        found = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text")
        return str((found.fetchone() or ["0"])[0])

    def _look_at_all(self) -> str:
        """Show every row to `work`; gives the horizon before the first of them."""
        horizon = self.pool.retry(self._horizon)
        for rows in stream(
            self.pool,
            self.words,
            self.catalog,
            self.columns,
            after=None,
            size=ROWS,
            missing=False,
        ):
            self._take(self.work(rows))
        return horizon

    def _take(self, made: pa.RecordBatch | None) -> None:
        if made is not None and len(made):
            write(self.pool, self.words, made)
            self._bring(made[self.words.id].to_pylist())

    def _since(self, connection: Connection, horizon: str) -> list[Id]:
        """Rows that came or changed since; a transaction's number goes round, its age does not."""
        ask = self.words.say(
            "SELECT t.{id}{cast} FROM {table} t WHERE age(t.xmin) <= age({horizon}::xid)",
            cast=self._cast,
            horizon=sql.Literal(horizon),
        )
        return [key for (key,) in connection.execute(ask).fetchall()]

    def _look_since(self, horizon: str) -> tuple[str, int]:
        """Show `work` what came or changed since; gives the next horizon, and how many rows."""
        following = self.pool.retry(self._horizon)
        ids = list({*self.pool.retry(lambda c: self._since(c, horizon)), *self.locked})
        for first in range(0, len(ids), ROWS):
            some = ids[first : first + ROWS]
            rows = self.pool.retry(partial(self._read, ids=some))
            self._take(self.work(rows))
            there = set(rows[self.words.id].to_pylist())
            # Rows that have gone are nobody's any more.
            self.locked.difference_update(key for key in some if key not in there)
            self._bring([key for key in some if key in there])
        return following, len(ids)

    def _check_all(self, horizon: str) -> None:
        """Nothing that has an old vector may end without a new one, nor break a constraint."""
        older = self.words.say(
            "WHERE NOT age(t.xmin) <= age({horizon}::xid)", horizon=sql.Literal(horizon)
        )
        self.pool.retry(lambda c: self._check(c, older))

    def _check(self, connection: Connection, among: Said) -> None:
        lost = self.words.say(
            "SELECT t.{id}{cast} FROM {table} t {among} AND t.{name} IS NULL "
            "AND vector_norm(t.{old}::vector) > 0 LIMIT 1",
            cast=self._cast,
            among=among,
            name=self.name,
            old=self.old,
        )
        found = connection.execute(lost).fetchone()
        if found is not None:
            raise StoreError(
                f"row {found[0]!r} has an old vector and no shared one",
                where=self.pool.name,
                step="run: crossfade migrate forward",
            )
        for check in self.found.checks:
            fails = fails_check(self.words, self.catalog, check, self.column, among)
            if connection.execute(fails).fetchone() is not None:
                raise StoreError(
                    f"the constraint {check.name!r} refuses some of the new vectors",
                    where=self.pool.name,
                    step="change or drop it, then repeat the command",
                )

    def _switch(self, horizon: str, *, last: bool) -> bool:
        """The last act; False if more came meanwhile than is to be looked at while others wait."""
        views = self._views()

        def act(connection: Connection) -> bool:
            # It reads the whole table; nobody else can use the processors for that now.
            connection.execute("SET LOCAL max_parallel_workers_per_gather = 4")
            ids = list({*self._since(connection, horizon), *self.locked})
            connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            if len(ids) > _FEW and not last:
                return False
            self.found = self._dependants(try_checks=False, connection=connection)
            built = (index_is_valid(connection, self.words.schema, n) for n, _ in self._indexes())
            if not all(built) or views != self._views():
                return False
            self._forget_indexes(connection)
            for first in range(0, len(ids), ROWS):
                self._finish_rows(connection, ids[first : first + ROWS])
            self._exchange(connection)
            return True

        # Views lead to the table, so they come after the table beside and before the table.
        beside = self.words.say("LOCK TABLE {side} IN ACCESS EXCLUSIVE MODE")
        return briefly(self.pool, self.words, act, first=[beside, *views], done=self._done)

    def _done(self, connection: Connection) -> bool | None:
        return None if self.column in added_columns(connection, self.words) else True

    def _views(self) -> list[Said]:
        return [one.lock for one in self.found.remade if one.lock is not None]

    def _forget_indexes(self, connection: Connection) -> None:
        """Rows that are written now need no entries in indexes that go in a moment."""
        beside = sql.Identifier(self.words.schema, self.words.index_name(self.column))
        connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(beside))
        for index in self.found.indexes:
            name = sql.Identifier(self.words.schema, index.name)
            connection.execute(sql.SQL("DROP INDEX {}").format(name))

    def _finish_rows(self, connection: Connection, ids: Sequence[Id]) -> None:
        made = self.work(self._read(connection, ids))
        if made is not None and len(made):
            write_within(connection, self.words, made)
        self._copy_over(connection, ids)
        self._check(connection, rows_of(self.words, ids))

    def _read(self, connection: Connection, ids: Sequence[Id]) -> pa.RecordBatch:
        wanted = rows_of(self.words, ids)
        return gather(connection, self.words, self.catalog, self.columns, wanted)

    def _exchange(self, connection: Connection) -> None:
        """Out with the old column, in with the new one, and with all that hung on it."""
        words, table, found = self.words, self.words.say("{table}"), self.found
        statements = [one.drop for one in reversed(found.remade)]
        for act in (
            "ALTER TABLE {table} DROP COLUMN {old}",
            "ALTER TABLE {table} RENAME COLUMN {name} TO {old}",
            "DROP TABLE {side}",
        ):
            statements.append(words.say(act, name=self.name, old=self.old))
        for name, index in self._indexes():
            ours = sql.Identifier(words.schema, name)
            theirs = sql.Identifier(index.name)
            statements.append(sql.SQL("ALTER INDEX {} RENAME TO {}").format(ours, theirs))
            if index.comment:
                told = sql.Literal(index.comment)
                its = sql.Identifier(words.schema, index.name)
                statements.append(sql.SQL("COMMENT ON INDEX {} IS {}").format(its, told))
        if found.column.not_null:
            # Valid at once it would be a look at every row.
            there = "ALTER TABLE {table} ADD CONSTRAINT {ours} CHECK ({old} IS NOT NULL) NOT VALID"
            ours = sql.Identifier(_NOT_NULL)
            statements.append(words.say(there, ours=ours, old=self.old))
        statements += [check.add(table) for check in found.checks]
        statements += [one for remade in found.remade for one in remade.make]
        for one in statements:
            connection.execute(one)
        left = {
            "column": self.column,
            "not_null": found.column.not_null,
            "validate": [check.name for check in found.checks if check.valid],
        }
        put_value(connection, words, PROMOTED, json.dumps(left))


_NOT_NULL = f"{PREFIX}not_null"


def _settle_constraints(pool: Pool, words: Statements, catalog: Catalog) -> None:
    """What is left after the switch: constraints that hold already, and are yet to be looked at.

    The look keeps nobody from the table. Done once, the column is NOT NULL without another one.
    """
    text = value_of(pool, words, PROMOTED)
    left = json.loads(text) if text else {}
    names = [*left.get("validate", []), *([_NOT_NULL] if left.get("not_null") else [])]
    for name in names:
        validate = "ALTER TABLE {table} VALIDATE CONSTRAINT {name}"
        pool.execute(words.say(validate, name=sql.Identifier(name)))
    if not names:
        return

    def settle(connection: Connection) -> None:
        if left.get("not_null"):
            for act in (
                "ALTER TABLE {table} ALTER COLUMN {vector} SET NOT NULL",
                "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {ours}",
            ):
                vector, ours = sql.Identifier(catalog.vector), sql.Identifier(_NOT_NULL)
                connection.execute(words.say(act, vector=vector, ours=ours))
        put_value(connection, words, PROMOTED, json.dumps({"column": left["column"]}))

    briefly(pool, words, settle)


def begin_anew(pool: Pool, words: Statements) -> None:
    """What an earlier migration has said of its end is not about this one."""
    if value_of(pool, words, PROMOTED) is not None:
        keep(pool, words, PROMOTED, None)
