"""A connection to PostgreSQL that is opened again when it breaks, and tells no secrets."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from crossfade.errors import MissingExtra, StoreError
from crossfade.redaction import redact
from crossfade.stores.address import Url
from crossfade.stores.locking import held_by_other

try:
    import psycopg
    from psycopg import sql as sql
except ImportError as error:
    raise MissingExtra("psycopg", extra="pgvector", need="a PostgreSQL store") from error

# What the application may wait for us where a change of its table needs a lock.
LOCK_TIMEOUT = "3s"
# How often a busy server looks whether we are still there, and how long that takes at most.
_LOOK_FOR_US = "500ms"
_UNTIL_MISSED = 2.0
Connection = psycopg.Connection[Any]
T = TypeVar("T")


class Session:
    """Statements said over one connection; each must be harmless to repeat."""

    def __init__(self, url: str, name: str, patience: float) -> None:
        self.name = name
        self._url, self._patience = url, patience
        self._secrets = Url.of(url).secrets
        self._open: Connection | None = None
        self._locked: str | None = None

    def another(self) -> Session:
        """A connection of its own to the same database."""
        return Session(self._url, self.name, self._patience)

    def run(self, statement: sql.SQL | sql.Composed, *, lock: bool = False) -> list[Any]:
        """Say one statement; with `lock`, give way to the application and try again."""

        def say(connection: Connection) -> list[Any]:
            connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT if lock else '0'}'")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        return self.doing(say)

    def doing(self, work: Callable[[Connection], T]) -> T:
        """Do it, over a new connection if the old one broke, until patience ends."""
        begin, pause = time.monotonic(), 0.1
        while True:
            try:
                return work(self._connection())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                in_the_way = isinstance(error, psycopg.errors.LockNotAvailable)
                broken = self._open is None or self._open.closed or self._open.broken
                waited = time.monotonic() - begin + pause > self._patience
                if waited or not (broken or in_the_way):
                    raise self._told(error) from None
                if broken:
                    self.close()
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            except psycopg.Error as error:
                raise self._told(error) from None

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """An advisory lock, which the server drops with the connection."""
        self.doing(lambda c: self._take(c, what))
        self._locked = what
        try:
            yield
        finally:
            self._locked = None
            with suppress(StoreError):
                self.doing(lambda c: c.execute("SELECT pg_advisory_unlock(%s)", [_key(what)]))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self) -> Connection:
        if self._open is None or self._open.closed:
            self._open = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
            # Filters are honoured behind the index: go on searching until k rows pass them.
            with suppress(psycopg.Error):
                self._open.execute("LOAD 'vector'")
                self._open.execute("SET hnsw.iterative_scan = strict_order")
            # Batches are small: a worker for each would start and end for next to nothing.
            self._open.execute("SET max_parallel_workers_per_gather = 0")
            with suppress(psycopg.Error):
                self._open.execute(f"SET client_connection_check_interval = '{_LOOK_FOR_US}'")
            if self._locked is not None:
                self._take(self._open, self._locked)
        return self._open

    def _take(self, connection: Connection, what: str) -> None:
        begin = time.monotonic()
        while True:
            got = connection.execute("SELECT pg_try_advisory_lock(%s)", [_key(what)]).fetchone()
            if got is not None and got[0]:
                return
            # The server needs a moment to see that a killed process has gone.
            if time.monotonic() - begin > _UNTIL_MISSED:
                raise held_by_other(self.name)
            time.sleep(0.1)

    def _told(self, error: psycopg.Error) -> StoreError:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # The address may be in it too, and a password in any spelling.
        text = redact(text.replace(self._url, self.name), self._secrets)
        return StoreError(text, where=self.name, step="check the server, then repeat the command")


def _key(what: str) -> int:
    digest = hashlib.blake2b(what.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
