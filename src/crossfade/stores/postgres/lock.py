"""One migration of a table at a time: an advisory lock, which the server drops with its connection.

The lock has a connection to itself. If that breaks, the server lets go, and another process may
take the lock, do its work and leave before anything is noticed here. So whoever takes it leaves a
mark in the table of values, and whoever has to take it again looks whether that is still theirs.

A process that is killed leaves statements behind that a server has begun and goes on with. So every
connection of the holder has a second lock, shared among them, and whoever takes the first ends the
connections that others have left with the second, before anything else is done.

Workers that fill a table together share the first lock, so that nobody has it alone meanwhile. Each
of their connections has a third lock, of its worker's mark: who takes the place of a worker that
was not heard of for too long ends those, and takes the mark out of the table of values, without
which no connection of that worker is opened again. So a worker that was asleep in the middle of a
write has written nothing of it when it wakes up.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import select
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from crossfade.errors import StoreError, WorkerLost
from crossfade.stores.locking import held_by_other
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.driver import psycopg
from crossfade.stores.postgres.state import LOCK, state_exists
from crossfade.stores.postgres.statements import (
    END_OTHERS,
    LOCK_SHARED,
    PING,
    TRY_LOCK,
    TRY_LOCK_SHARED,
    UNLOCK,
    Statements,
)

# A server needs a moment to see that a killed process has gone, and to end what it has left.
_UNTIL_MISSED = 2.0
_UNTIL_ENDED = 10.0


def migration_lock(pool: Pool, statements: Statements) -> AbstractContextManager[None]:
    """Hold the table; while it is held, everything done through `pool` sees to it that it is."""
    return _holding(pool, _Held(pool, statements))


def worker_lock(pool: Pool, statements: Statements, mark: str) -> AbstractContextManager[None]:
    """Hold the table together with other workers."""
    return _holding(pool, _Joined(pool, statements, mark))


def end_worker(pool: Pool, statements: Statements, mark: str) -> None:
    """Let nothing more come of a worker: neither of what it has begun, nor of what it begins."""
    pool.execute(statements.delete_value(_row(mark)))
    pool.retry(lambda connection: _end_holders(connection, _key(_row(mark))))


@contextmanager
def _holding(pool: Pool, held: _Held) -> Iterator[None]:
    ours = os.getpid()
    pool.persist(held.begin)
    # Those that are open have not claimed anything.
    pool.renew()
    pool.guard, pool.claim = held.check, held.claim
    try:
        yield
    finally:
        # A child that was forked meanwhile has neither the lock nor its connection.
        if os.getpid() == ours:
            pool.guard = pool.claim = None
            pool.renew()
            held.leave()


class _Held:
    """The lock, its connection, and the mark that says whose it is."""

    how = TRY_LOCK

    def __init__(self, pool: Pool, statements: Statements) -> None:
        self.pool, self.statements = pool, statements
        self.connection: Connection | None = None
        self.mark: str | None = None
        self._checking = threading.Lock()

    def begin(self) -> None:
        self.end()
        self.connection = self._taken()
        self._end_others(self.connection)
        if state_exists(self.connection, self.statements):
            mark = secrets.token_hex(8)
            self.connection.execute(self.statements.put_value(LOCK, mark))
            self.mark = mark

    def claim(self, connection: Connection) -> None:
        """Let whoever comes after us know that this connection is ours."""
        connection.execute(LOCK_SHARED, [self._shared])

    @property
    def _shared(self) -> int:
        return _key(f"{self.statements.schema}.{self.statements.name}/connections")

    def _end_others(self, connection: Connection) -> None:
        """What a process that had the lock before has left running is ended, and waited for."""
        if not _end_holders(connection, self._shared):
            raise held_by_other(self.pool.name)

    def check(self) -> None:
        """Take it again if it was lost and nobody else had it; `StoreError` if somebody had."""
        with self._checking:
            if self.connection is None or not _alive(self.connection):
                self.end()
                self.connection = self._taken()
                if self.mark is None or self._found() != self.mark:
                    raise StoreError(
                        "lost its lock on the table, and another process may have had it since",
                        where=self.pool.name,
                        step="look at: crossfade migrate status, then repeat the command",
                    )

    def end(self) -> None:
        if self.connection is not None:
            self.pool.discard(self.connection)
            self.connection = None

    def leave(self) -> None:
        """Let go of it for good."""
        self.end()

    def _found(self) -> str | None:
        if self.connection is None or not state_exists(self.connection, self.statements):
            return None
        row = self.connection.execute(self.statements.read_value(LOCK)).fetchone()
        return None if row is None else str(row[0])

    def _taken(self) -> Connection:
        connection = self.pool.open()
        begin = time.monotonic()
        key = _key(f"{self.statements.schema}.{self.statements.name}")
        while True:
            got = connection.execute(self.how, [key]).fetchone()
            if got is not None and got[0]:
                return connection
            if time.monotonic() - begin > _UNTIL_MISSED:
                self.pool.discard(connection)
                raise held_by_other(self.pool.name)
            time.sleep(0.1)


class _Joined(_Held):
    """A worker's part of the lock: others have theirs, and nobody has it alone."""

    how = TRY_LOCK_SHARED

    def __init__(self, pool: Pool, statements: Statements, worker: str) -> None:
        super().__init__(pool, statements)
        self.row = _row(worker)

    def begin(self) -> None:
        self.end()
        self.connection = self._taken()
        # Whoever has had it alone since has put another there.
        self.mark = self._found()
        self.connection.execute(self.statements.put_value(self.row, ""))
        self.connection.execute(LOCK_SHARED, [_key(self.row)])

    def claim(self, connection: Connection) -> None:
        super().claim(connection)
        # In this order: who takes our place takes the row first, and then ends who has the lock.
        connection.execute(LOCK_SHARED, [_key(self.row)])
        if connection.execute(self.statements.read_value(self.row)).fetchone() is None:
            self.pool.discard(connection)
            raise WorkerLost(
                "this worker was away too long, and its part is another's",
                where=self.pool.name,
                step="look at: crossfade migrate status, then repeat the command",
            )

    def leave(self) -> None:
        if self.connection is not None:
            with suppress(psycopg.Error):
                self.connection.execute(self.statements.delete_value(self.row))
        self.end()


def _end_holders(connection: Connection, lock: int) -> bool:
    """End the connections that have this lock; gives whether all of them are gone."""
    begin = time.monotonic()
    while True:
        got = connection.execute(TRY_LOCK, [lock]).fetchone()
        if got is not None and got[0]:
            connection.execute(UNLOCK, [lock])
            return True
        if time.monotonic() - begin > _UNTIL_ENDED:
            return False
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(END_OTHERS, [lock])
        time.sleep(0.05)


def _row(worker: str) -> str:
    return f"worker/{worker}"


def _alive(connection: Connection) -> bool:
    """Whether the server still has this connection: it says so when it ends one, unasked."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return True
    try:
        connection.execute(PING)
    except psycopg.Error:
        return False
    return True


def _key(what: str) -> int:
    digest = hashlib.blake2b(what.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
