"""How pgvector's shared vectors become the application's only ones.

Beside the old column the table gets one for the new vectors, and every row its vector, in batches
so small that nobody waits for them and without waiting for anybody. Indexes are built there while
those of the old column stand. Then everything that came or changed meanwhile is looked at, again
and again until there is little left of it, and only then the table is taken for a moment: what is
left is looked at, the old column goes and the new one gets its name, in one transaction.

Whoever locks both the table beside and the application's begins with the one beside; searches do
the same, so that neither can wait for the other in a circle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from crossfade.errors import StoreError
from crossfade.stores.contract import ROWS, Id, Work
from crossfade.stores.postgres.catalog import Catalog, added_columns
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.dependants import Dependants, find_dependants
from crossfade.stores.postgres.exclusive import act_exclusively
from crossfade.stores.postgres.index import build_index, index_is_valid
from crossfade.stores.postgres.rows import gather, stream
from crossfade.stores.postgres.state import keep, put_value, value_of
from crossfade.stores.postgres.statements import (
    COMMIT_WITHOUT_WAITING,
    HORIZON,
    PAGES,
    ROWS_AND_DEAD,
    TYPE_OF_COLUMN,
    WRITE_AS_REPLICA,
    Index,
    NewColumn,
    Statement,
    Statements,
    set_for_transaction,
)
from crossfade.stores.postgres.write import write, write_within

PROMOTED = "promoted"
# Rows are locked for about this long at a time.
_MOMENT = 0.05
# Pages of the table that are gone through together, a row of each at a time.
_PAGES = 4096
# Fewer rows than this are left to the moment when the table is locked; after so many attempts, any.
_FEW, _ATTEMPTS = 200, 20
_IDS = 50_000


def promote(
    pool: Pool,
    statements: Statements,
    catalog: Catalog,
    column: str,
    columns: Sequence[str],
    work: Work,
) -> None:
    """Let `column` of the table beside take the place of the vectors; see `Store.promote`."""
    if column in pool.retry(lambda c: added_columns(c, statements)):
        _Promotion(pool, statements, catalog, column, columns, work).run()
    _settle_constraints(pool, statements, catalog)


def withdraw(pool: Pool, statements: Statements, column: str) -> None:
    """Take the new column from the application's table again; the one beside stays."""
    if value_of(pool, statements, PROMOTED) is not None:
        raise StoreError(
            "the old vectors are gone already",
            where=pool.name,
            step="finish the migration, or restore a backup",
        )
    drop = statements.drop_new_column(column)
    if pool.retry(lambda c: _type_of(c, statements, column)) is not None:
        act_exclusively(pool, statements, lambda c: c.execute(drop))


def _type_of(connection: Connection, statements: Statements, column: str) -> str | None:
    """The type of a column of the application's table, if there is one."""
    found = connection.execute(TYPE_OF_COLUMN, [statements.table_name, column]).fetchone()
    return None if found is None else str(found[0])


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
        statements: Statements,
        catalog: Catalog,
        column: str,
        columns: Sequence[str],
        work: Work,
    ) -> None:
        self.pool, self.statements, self.catalog, self.column = pool, statements, catalog, column
        self.columns, self.work = columns, work
        self.dim = pool.retry(lambda c: added_columns(c, statements))[column].dim
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
            return find_dependants(connection, self.statements, self.catalog, try_checks=try_checks)

        found = self.pool.retry(find) if connection is None else find(connection)
        final = [one.cause for one in found.obstacles if one.final]
        if final:
            raise StoreError(
                f"cannot make the new vectors the only ones: {'; '.join(final)}",
                where=self.pool.name,
                step="nothing was taken away; see to it, then repeat the command",
            )
        return found

    @property
    def new(self) -> NewColumn:
        return NewColumn(self.column, self.catalog.vector, self.dim, self.found.column)

    def _add_column(self) -> None:
        def find(connection: Connection) -> str | None:
            return _type_of(connection, self.statements, self.column)

        def add(connection: Connection) -> None:
            there = find(connection)
            if there == self.new.type:
                return
            if there is not None:
                # Left by a migration to another dimension.
                connection.execute(self.statements.drop_new_column(self.column))
            for one in self.statements.add_new_column(self.new):
                connection.execute(one)

        if self.pool.retry(find) != self.new.type:
            act_exclusively(self.pool, self.statements, add)

    def _bring_pages(self) -> None:
        """Every row that has nothing yet, page by page.

        A new version of a row that finds room on its own page needs no entries in indexes, the old
        vectors' among them, which cost most. A page has room once the version before it has been
        cleared away. So a stretch of pages is gone through several times, one row of each page at a
        time: the first row of a full page moves elsewhere, the others take its place by turns.
        """
        found = self.pool.execute(PAGES, [self.statements.table_name])
        pages = int(found[0][0]) if found else 0
        for first in range(0, pages, _PAGES):
            due = self.statements.due_on_pages(self.new, first, first + _PAGES)
            self._bring([key for key, _ in self.pool.execute(due)])

    def _behind(self) -> list[Id]:
        """Rows, at one moment, that have another vector than they should have."""
        return [key for (key,) in self.pool.execute(self.statements.behind(self.new, _IDS))]

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
        lock = self.statements.lock_free_rows(ids)
        with connection.transaction():
            # Lost with the server, it is done again.
            connection.execute(COMMIT_WITHOUT_WAITING)
            free = {key for (key,) in connection.execute(lock).fetchall()}
            return free, self._copy_over(connection, list(free)) if free else 0

    def _copy_over(self, connection: Connection, ids: Sequence[Id]) -> int:
        """Vectors into rows that nobody else can change."""
        if self.found.may_replicate:
            connection.execute(WRITE_AS_REPLICA)
        change = self.statements.bring_over(self.new, ids)
        return int(connection.execute(change).rowcount)

    def _stand_in(self, index: Index) -> str:
        return index.stand_in(self.statements, self.column)

    def _index(self) -> None:
        table = self.statements.table
        for index in self.found.indexes:

            def build(connection: Connection, index: Index = index) -> None:
                which = [self.statements.table_name]
                rows = connection.execute(ROWS_AND_DEAD, which).fetchone()
                build_index(
                    connection,
                    self.statements.schema,
                    self._stand_in(index),
                    lambda named: index.create(named, table, self.column),
                    rows=rows[0] if rows else 0,
                    dim=self.dim,
                )

            self.pool.retry(build)

    def _horizon(self, connection: Connection) -> str:
        """Whatever is not older than this may not have been seen by those who look from now on."""
        return str((connection.execute(HORIZON).fetchone() or ["0"])[0])

    def _look_at_all(self) -> str:
        """Show every row to `work`; gives the horizon before the first of them."""
        horizon = self.pool.retry(self._horizon)
        for rows in stream(
            self.pool,
            self.statements,
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
            write(self.pool, self.statements, made)
            self._bring(made[self.statements.id].to_pylist())

    def _since(self, connection: Connection, horizon: str) -> list[Id]:
        ask = self.statements.since(horizon)
        return [key for (key,) in connection.execute(ask).fetchall()]

    def _look_since(self, horizon: str) -> tuple[str, int]:
        """Show `work` what came or changed since; gives the next horizon, and how many rows."""
        following = self.pool.retry(self._horizon)
        ids = list({*self.pool.retry(lambda c: self._since(c, horizon)), *self.locked})
        for first in range(0, len(ids), ROWS):
            some = ids[first : first + ROWS]
            rows = self.pool.retry(partial(self._read, ids=some))
            self._take(self.work(rows))
            there = set(rows[self.statements.id].to_pylist())
            # Rows that have gone are nobody's any more.
            self.locked.difference_update(key for key in some if key not in there)
            self._bring([key for key in some if key in there])
        return following, len(ids)

    def _check_all(self, horizon: str) -> None:
        """Nothing that has an old vector may end without a new one, nor break a constraint."""
        older = self.statements.before(horizon)
        self.pool.retry(lambda c: self._check(c, older))

    def _check(self, connection: Connection, among: Statement) -> None:
        found = connection.execute(self.statements.lost(self.new, among)).fetchone()
        if found is not None:
            raise StoreError(
                f"row {found[0]!r} has an old vector and no shared one",
                where=self.pool.name,
                step="run: crossfade migrate forward",
            )
        for check in self.found.checks:
            refused = self.statements.refused_by(
                check, self.catalog, shared=self.column, among=among
            )
            if connection.execute(refused).fetchone() is not None:
                raise StoreError(
                    f"the constraint {check.name!r} refuses some of the new vectors",
                    where=self.pool.name,
                    step="change or drop it, then repeat the command",
                )

    def _switch(self, horizon: str, *, last: bool) -> bool:
        """The last act; False if more came meanwhile than is to be looked at while others wait."""
        views = self._views()

        def act(connection: Connection) -> bool:
            workers = "max_parallel_workers_per_gather"
            # It reads the whole table; nobody else can use the processors for that now.
            connection.execute(set_for_transaction(workers, 4))
            ids = list({*self._since(connection, horizon), *self.locked})
            connection.execute(set_for_transaction(workers, 0))
            if len(ids) > _FEW and not last:
                return False
            self.found = self._dependants(try_checks=False, connection=connection)
            built = (
                index_is_valid(connection, self.statements.schema, self._stand_in(index))
                for index in self.found.indexes
            )
            if not all(built) or views != self._views():
                return False
            for one in self.statements.forget_indexes(self.new, self.found.indexes):
                connection.execute(one)
            for first in range(0, len(ids), ROWS):
                self._finish_rows(connection, ids[first : first + ROWS])
            self._exchange(connection)
            return True

        # Views lead to the table, so they come after the table beside and before the table.
        first = [self.statements.lock_side(), *views]
        return act_exclusively(self.pool, self.statements, act, first=first, done=self._done)

    def _done(self, connection: Connection) -> bool | None:
        return None if self.column in added_columns(connection, self.statements) else True

    def _views(self) -> list[Statement]:
        return [one.lock for one in self.found.remade if one.lock is not None]

    def _finish_rows(self, connection: Connection, ids: Sequence[Id]) -> None:
        made = self.work(self._read(connection, ids))
        if made is not None and len(made):
            write_within(connection, self.statements, made)
        self._copy_over(connection, ids)
        self._check(connection, self.statements.rows_of(ids))

    def _read(self, connection: Connection, ids: Sequence[Id]) -> pa.RecordBatch:
        wanted = self.statements.rows_of(ids)
        return gather(connection, self.statements, self.catalog, self.columns, wanted)

    def _exchange(self, connection: Connection) -> None:
        """Out with the old column, in with the new one, and with all that hung on it."""
        found = self.found
        for one in self.statements.exchange(
            self.new, indexes=found.indexes, checks=found.checks, remade=found.remade
        ):
            connection.execute(one)
        left = {
            "column": self.column,
            "not_null": found.column.not_null,
            "validate": [check.name for check in found.checks if check.valid],
        }
        put_value(connection, self.statements, PROMOTED, json.dumps(left))


def _settle_constraints(pool: Pool, statements: Statements, catalog: Catalog) -> None:
    """What is left after the switch: constraints that hold already, and are yet to be looked at.

    The look keeps nobody from the table. Done once, the column is NOT NULL without another one.
    """
    text = value_of(pool, statements, PROMOTED)
    left = json.loads(text) if text else {}
    not_null = bool(left.get("not_null"))
    looks = statements.validate(left.get("validate", []), not_null=not_null)
    for one in looks:
        pool.execute(one)
    if not looks:
        return

    def settle(connection: Connection) -> None:
        for one in statements.set_not_null(catalog.vector) if not_null else []:
            connection.execute(one)
        put_value(connection, statements, PROMOTED, json.dumps({"column": left["column"]}))

    act_exclusively(pool, statements, settle)


def begin_anew(pool: Pool, statements: Statements) -> None:
    """What an earlier migration has said of its end is not about this one."""
    if value_of(pool, statements, PROMOTED) is not None:
        keep(pool, statements, PROMOTED, None)
