"""One migration of a table at a time: an advisory lock, which the server drops with its connection.

The lock has a connection to itself. If that breaks, the server lets go, and another process may
take the lock, do its work and leave before anything is noticed here. So whoever takes it leaves a
mark in the table of values, and whoever has to take it again looks whether that is still theirs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from crossfade.errors import StoreError
from crossfade.stores.locking import held_by_other
from crossfade.stores.pgconnection import Connection, Pool, sql
from crossfade.stores.pgstate import LOCK, state_exists
from crossfade.stores.pgstatements import Statements

# A server needs a moment to see that a killed process has gone.
_UNTIL_MISSED = 2.0


@contextmanager
def migration_lock(pool: Pool, words: Statements) -> Iterator[None]:
    """Hold the table; while it is held, everything said through `pool` sees to it that it is."""
    held, ours = _Held(pool, words), os.getpid()
    pool.persist(held.begin)
    pool.guard = held.check
    try:
        yield
    finally:
        # A child that was forked meanwhile has neither the lock nor its connection.
        if os.getpid() == ours:
            pool.guard = None
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
        if state_exists(self.connection, self.words):
            mark = secrets.token_hex(8)
            put = (
                "INSERT INTO {state} VALUES ({store}, {lock}, {mark}) "
                "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value"
            )
            said = self.words.say(put, lock=sql.Literal(LOCK), mark=sql.Literal(mark))
            self.connection.execute(said)
            self.mark = mark

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
