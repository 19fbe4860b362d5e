"""One migration of a table at a time: an advisory lock, which the server drops with its connection.

The lock has a connection to itself. If that breaks, the server lets go, and another process may
take the lock, do its work and leave before anything is noticed here. So whoever takes it leaves a
mark in the table of values, and whoever has to take it again looks whether that is still theirs.

A process that is killed leaves statements behind that a server has begun and goes on with. So every
connection of the holder has a second lock, shared among them, and whoever takes the first ends the
connections that others have left with the second, before anything else is done.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from crossfade.errors import StoreError
from crossfade.stores.locking import held_by_other
from crossfade.stores.postgres.connection import Connection, Pool, sql
from crossfade.stores.postgres.state import LOCK, state_exists
from crossfade.stores.postgres.statements import Statements

# A server needs a moment to see that a killed process has gone, and to end what it has left.
_UNTIL_MISSED = 2.0
_UNTIL_ENDED = 10.0
# An advisory lock of one 64-bit number is shown as its halves.
_END_OTHERS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l
    JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
    AND (l.classid::bigint << 32 | l.objid::bigint) = %s
"""


@contextmanager
def migration_lock(pool: Pool, words: Statements) -> Iterator[None]:
    """Hold the table; while it is held, everything said through `pool` sees to it that it is."""
    held, ours = _Held(pool, words), os.getpid()
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
            held.end()


class _Held:
    """The lock, its connection, and the mark that says whose it is."""

    def __init__(self, pool: Pool, words: Statements) -> None:
        self.pool, self.words = pool, words
        self.connection: Connection | None = None
        self.mark: str | None = None
        self._checking = threading.Lock()

    def begin(self) -> None:
        self.end()
        self.connection = self._taken()
        self._end_others(self.connection)
        if state_exists(self.connection, self.words):
            mark = secrets.token_hex(8)
            put = (
                "INSERT INTO {state} VALUES ({store}, {lock}, {mark}) "
                "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value"
            )
            said = self.words.say(put, lock=sql.Literal(LOCK), mark=sql.Literal(mark))
            self.connection.execute(said)
            self.mark = mark

    def claim(self, connection: Connection) -> None:
        """Let whoever comes after us know that this connection is ours."""
        connection.execute("SELECT pg_advisory_lock_shared(%s)", [self._shared])

    @property
    def _shared(self) -> int:
        return _key(f"{self.words.schema}.{self.words.name}/connections")

    def _end_others(self, connection: Connection) -> None:
        """What a process that had the lock before has left running is ended, and waited for."""
        begin = time.monotonic()
        while True:
            got = connection.execute("SELECT pg_try_advisory_lock(%s)", [self._shared]).fetchone()
            if got is not None and got[0]:
                connection.execute("SELECT pg_advisory_unlock(%s)", [self._shared])
                return
            if time.monotonic() - begin > _UNTIL_ENDED:
                raise held_by_other(self.pool.name)
            with suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute(_END_OTHERS, [self._shared])
            time.sleep(0.05)

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

    def _found(self) -> str | None:
        if self.connection is None or not state_exists(self.connection, self.words):
            return None
        ask = self.words.say(
            "SELECT value FROM {state} WHERE store = {store} AND key = {lock}",
            lock=sql.Literal(LOCK),
        )
        row = self.connection.execute(ask).fetchone()
        return None if row is None else str(row[0])

    def _taken(self) -> Connection:
        connection = self.pool.open()
        begin = time.monotonic()
        key = _key(f"{self.words.schema}.{self.words.name}")
        while True:
            got = connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
            if got is not None and got[0]:
                return connection
            if time.monotonic() - begin > _UNTIL_MISSED:
                self.pool.discard(connection)
                raise held_by_other(self.pool.name)
            time.sleep(0.1)


def _alive(connection: Connection) -> bool:
    """Whether the server still has this connection: it says so when it ends one, unasked."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return True
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _key(what: str) -> int:
    digest = hashlib.blake2b(what.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
