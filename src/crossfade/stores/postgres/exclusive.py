"""The application's table to itself, for a moment, and without anybody waiting for that moment.

Whoever waits for a lock has others queue behind it, readers too. So it is waited for a little while
only, given up, and tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from crossfade.errors import StoreError
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.driver import psycopg
from crossfade.stores.postgres.statements import (
    LONGEST_HOLDER,
    Statement,
    Statements,
    set_for_transaction,
)

# How long the application may queue behind a lock that we wait for, and how long we go on trying.
_LOCK_TIMEOUT = "80ms"
_LOCK_PATIENCE = 600.0
_LOCK_PAUSE = 0.5
_CALM_TIMEOUT = "10s"
T = TypeVar("T")


def act_exclusively(
    pool: Pool,
    statements: Statements,
    act: Callable[[Connection], T],
    *,
    first: Iterable[Statement] = (),
    done: Callable[[Connection], T | None] = lambda _: None,
) -> T:
    """Do it in a transaction that has the application's table for itself.

    `first` are statements that lock other things before it, in this order. `done` gives what `act`
    would if it was done before, by a connection that broke and could not say so. Such a connection
    may come to its end at any moment, so it is asked for again once nobody else can change a thing,
    and when something to be locked has gone.
    """

    locks = [*first, statements.lock_table()]
    begin = time.monotonic()

    def work(connection: Connection) -> T:
        if (before := done(connection)) is not None:
            return before
        try:
            return lock_and_act(connection)
        except psycopg.errors.UndefinedTable:
            if (before := done(connection)) is None:
                raise
            return before

    def lock_and_act(connection: Connection) -> T:
        with connection.transaction():
            connection.execute(set_for_transaction("lock_timeout", _CALM_TIMEOUT))
            connection.execute(statements.lock_calmly())
            connection.execute(set_for_transaction("lock_timeout", _LOCK_TIMEOUT))
            while not _locked(connection, locks):
                if time.monotonic() - begin > _LOCK_PATIENCE:
                    raise psycopg.errors.LockNotAvailable
                # The application, which queued behind us, has its turn.
                time.sleep(_LOCK_PAUSE)
            connection.execute(set_for_transaction("lock_timeout", 0))
            before = done(connection)
            return act(connection) if before is None else before

    while True:
        try:
            return pool.retry(work, wait_for_locks=False)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() - begin > _LOCK_PATIENCE:
                raise StoreError(
                    f"cannot have the table for a moment: {_holder(pool, statements)}",
                    where=pool.name,
                    step="end that transaction, then repeat the command",
                ) from None


def _locked(connection: Connection, locks: Iterable[Statement]) -> bool:
    """All of them, or none."""
    try:
        with connection.transaction():
            for lock in locks:
                connection.execute(lock)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _holder(pool: Pool, statements: Statements) -> str:
    """Who has had the table the longest."""
    which = [statements.table_name]
    found = pool.retry(lambda c: c.execute(LONGEST_HOLDER, which).fetchone())
    if found is None:
        return "others come and go too fast"
    pid, user, state, since = found
    return f"process {pid} of {user!r} ({state}) has held it since {since:%H:%M:%S}"
