"""Connections to one PostgreSQL database: as many as there are operations at a time, opened again
when they break, and no secret in any message.

Threads that share a store each have a connection to themselves for as long as an operation takes.
A process that is forked leaves its parent's connections alone: what a child says on a socket of its
parent would be an answer to somebody else.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import StoreError
from crossfade.redaction import redact
from crossfade.stores.address import Url
from crossfade.stores.postgres import statements
from crossfade.stores.postgres.copy import encode_vector
from crossfade.stores.postgres.driver import psycopg
from crossfade.stores.postgres.statements import Statement
from crossfade.threads import at_once

# More operations at a time than this wait for each other: a server has a hundred connections.
_MOST = 8
_SETTINGS = {
    # A query that a policy would take rows from is an error, and never a smaller answer.
    "row_security": "off",
    # What is repeated after a conflict is our affair; a database's default may be stricter.
    "default_transaction_isolation": "read committed",
    # Batches are small: a worker for each would start and end for next to nothing.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    # Counters of activity as they are now, not as they were at the first look.
    "stats_fetch_consistency": "none",
    # Filters are looked at behind the index: it has to go on until k rows pass them.
    "hnsw.iterative_scan": "relaxed_order",
    "ivfflat.iterative_scan": "relaxed_order",
}
# A role's limits are for its requests, not for the hours of a migration.
_LIMITS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
_BACKOFF = 0.1
# Nothing is prepared for having been executed so often: what is, is told.
_WHEN_TOLD = 1 << 31
# A server that has never answered is more often a wrong address than one that comes back.
_FIRST_PATIENCE = 5.0
T = TypeVar("T")
U = TypeVar("U")


class _VectorDumper(psycopg.adapt.Dumper):
    """An array as a vector, in binary; the server infers its type from the statement."""

    format = psycopg.pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return encode_vector(obj)


class Connection(psycopg.Connection[Any]):
    """A connection that knows which settings its server has, and how they are set."""

    known: frozenset[str] = frozenset()
    era = 0
    prepares = False
    """Whether a statement that was prepared is there the next time."""

    def set(self, name: str, value: str | None) -> None:
        """Set something for the session, or back to the server's own with None.

        Nothing is done where it is set so already, or where the server has no such setting. Not
        for use in transactions, whose end may undo it.
        """
        done: dict[str, str | None] = self.__dict__.setdefault("_done", {})
        if name in self.known and done.get(name) != value:
            self.execute(statements.set_option(name, value))
            done[name] = value

    def search(
        self,
        statement: Statement,
        vectors: Sequence[NDArray[np.float32]],
        *,
        binary: bool = False,
        again: bool = False,
    ) -> psycopg.RawCursor[Any]:
        """Execute a statement in which vectors are $1, $2 and so on; what it gives comes as text
        unless it may come as bytes, which the values of extensions then do.

        One that is executed `again` and again is prepared, for to plan it takes as long as to
        search. Not for use in transactions, which a plan that is out of date would end.
        """
        cursor, values = psycopg.RawCursor(self), list(vectors)
        if again and self.prepares:
            try:
                return cursor.execute(statement, values, prepare=True, binary=binary)
            except _UNPREPARED:
                # Columns have changed their types, or someone in between has other sessions.
                self.prepares = False
        return cursor.execute(statement, values, prepare=False, binary=binary)


class Pool:
    """Connections for the operations of one store."""

    def __init__(self, url: str, name: str, patience: float) -> None:
        self.name, self.patience = name, patience
        self.guard: Callable[[], None] | None = None
        """Called before anything is executed, while a migration holds the store."""
        self.claim: Callable[[Connection], None] | None = None
        """Called with every connection that is opened meanwhile."""
        self._url = url
        self._secrets = Url.of(url).secrets
        self._reached = False
        self._empty()
        _pools.add(self)

    def execute(self, statement: Statement | str, values: Sequence[Any] = ()) -> list[Any]:
        """One statement that may be executed twice, and its rows."""

        def act(connection: Connection) -> list[Any]:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        return self.retry(act)

    def retry(self, work: Callable[[Connection], T], *, wait_for_locks: bool = True) -> T:
        """Do it on a connection of its own, and again if that broke or others were in the way.

        A server that goes away may have done the work and not said so: `work` must come to the
        same if it is done twice.
        """

        def act() -> T:
            if self.guard is not None:
                self.guard()
            with self._borrowed() as connection:
                return work(connection)

        return self.persist(act, wait_for_locks=wait_for_locks)

    def persist(self, act: Callable[[], T], *, wait_for_locks: bool = True) -> T:
        """Do it until the server is there and nobody is in the way, for as long as patience is.

        Without `wait_for_locks`, a lock that is not to be had is the caller's affair, and raised.
        """
        begin, pause = time.monotonic(), _BACKOFF
        while True:
            try:
                return act()
            except psycopg.Error as error:
                if isinstance(error, psycopg.errors.LockNotAvailable) and not wait_for_locks:
                    raise
                gone = _gone(error)
                if gone:
                    # Whatever ended this connection has most likely ended the others too.
                    self._close_idle()
                patience = self.patience
                if not self._reached:
                    patience = min(patience, _FIRST_PATIENCE)
                late = time.monotonic() - begin + pause > patience
                if late or not (gone or isinstance(error, _IN_THE_WAY)):
                    raise self.translate(error) from None
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    def open(self) -> Connection:
        """A connection that its caller closes."""
        connection = Connection.connect(
            self._url,
            autocommit=True,
            connect_timeout=10,
            fallback_application_name="crossfade",
            prepare_threshold=None,
        )
        self._reached = True
        connection.adapters.register_dumper(np.ndarray, _VectorDumper)
        connection.era = self._era
        with self._free:
            self._all.add(connection)
        for wish in (statements.LOAD_VECTOR, statements.CHECK_FOR_CLIENT):
            with suppress(psycopg.Error):
                connection.execute(wish)
        connection.execute(statements.set_known_options(_SETTINGS))
        found = connection.execute(statements.LIST_SETTINGS).fetchall()
        connection.known = frozenset(name for (name,) in found)
        # A pooler in between gives a number of its own, and another session as it likes.
        process = connection.execute(statements.WHOSE_PROCESS).fetchone()
        if process == (connection.info.backend_pid,):
            connection.prepares, connection.prepare_threshold = True, _WHEN_TOLD
        if self.claim is not None:
            with suppress(psycopg.Error):
                connection.execute(statements.FLUSH_STEADILY)
            self.claim(connection)
        return connection

    def close(self) -> None:
        """Close what is idle, and what is in use as it comes back."""
        self.renew()

    def renew(self) -> None:
        """Open other connections from now on; those in use are closed as they come back."""
        self._era += 1
        self._close_idle()

    def translate(self, error: psycopg.Error) -> StoreError:
        """The error as a user is told it."""
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # The address may be in it too, and a password in any spelling.
        text = redact(text.replace(self._url, self.name), self._secrets)
        step = "check the server, then repeat the command"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            step = "use a role that may do this, such as the table's owner"
            if "row-level security" in text:
                step = "use a role that sees every row: the table's owner, or one with BYPASSRLS"
        return StoreError(text, where=self.name, step=step)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        with self._free:
            while not self._idle and self._used >= _MOST:
                self._free.wait()
            connection = self._idle.pop() if self._idle else None
            self._used += 1
        free = self._free
        try:
            connection = self._ready(connection)
            yield connection
        finally:
            self._return(connection, free)

    def _return(self, connection: Connection | None, free: threading.Condition) -> None:
        with free:
            # After a fork, this is another pool's.
            if free is self._free:
                self._used -= 1
                self._free.notify()
                if connection is not None:
                    self._take_back(connection)

    def _ready(self, connection: Connection | None) -> Connection:
        if connection is None or connection.closed:
            connection = self.open()
        for name in _LIMITS:
            connection.set(name, None if self.guard is None else "0")
        return connection

    def lend(self) -> Connection:
        """One more connection for an operation that has one already; `give_back` ends it."""
        with self._free:
            connection = self._idle.pop() if self._idle else None
        return self._ready(connection)

    def give_back(self, connection: Connection) -> None:
        """Keep it for others, or close it if it is in the middle of something."""
        with self._free:
            self._take_back(connection)

    def _take_back(self, connection: Connection) -> None:
        calm = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if calm and connection.era == self._era:
            self._idle.append(connection)
        else:
            self.discard(connection)

    def side_by_side(
        self, connection: Connection, work: Callable[[Connection, T], U], tasks: Sequence[T]
    ) -> list[U]:
        """Two tasks at a time, the second over a connection of its own, and so of another moment;
        one after the other where all are in use, or the server has none left."""
        first, second = tasks
        with self._spare() as other:
            if other is None:
                return [work(connection, first), work(connection, second)]
            return [*at_once(lambda: work(connection, first), lambda: work(other, second))]

    @contextmanager
    def _spare(self) -> Iterator[Connection | None]:
        """One more connection, for nobody to wait for."""
        with self._free:
            room = self._used < _MOST
            connection = self._idle.pop() if room and self._idle else None
            self._used += room
        if not room:
            yield None
            return
        free = self._free
        try:
            with suppress(psycopg.OperationalError):
                connection = self._ready(connection)
            yield connection
        finally:
            self._return(connection, free)

    def discard(self, connection: Connection) -> None:
        """Close a connection for good."""
        connection.close()
        with self._free:
            self._all.discard(connection)

    def _close_idle(self) -> None:
        with self._free:
            while self._idle:
                self.discard(self._idle.pop())

    def _empty(self) -> None:
        self._free = threading.Condition(threading.RLock())
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._used = self._era = 0

    def _leave_to_parent(self) -> None:
        """In a child: nothing is ours. The sockets are closed here, or a server would not notice
        that the parent, and with it its lock, has gone."""
        for connection in self._all:
            with suppress(psycopg.Error, OSError):
                os.close(connection.fileno())
        # Never collected: their destructors would complain that they are still open.
        _inherited.extend(self._all)
        self.guard = self.claim = None
        self._empty()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_inherited: list[Connection] = []
_UNPREPARED = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)
_IN_THE_WAY = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)


def _gone(error: psycopg.Error) -> bool:
    """Whether the server went away, or does not let us in for now."""
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        code = error.sqlstate
        return code is None or code.startswith(("08", "57P")) or code == "53300"
    return False


def _leave_to_parents() -> None:
    for pool in list(_pools):
        pool._leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parents)
