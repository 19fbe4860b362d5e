"""Connections to one SQLite file: some that read, and one that writes.

A connection is lent to one thread at a time, and never taken along into a process that is forked
off. A transaction that writes is begun with its lock (`BEGIN IMMEDIATE`), which keeps every other
writer out until it ends: what is compared in it is still so when it is committed.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crossfade.errors import BadInput, MissingExtra, StoreError

Connection = Any
# What others may hold the file for, in milliseconds, before that is an error.
_PATIENCE = 30_000


def driver() -> Any:
    """The binding of SQLite that can load extensions, which Python's own often cannot."""
    try:
        import apsw
    except ImportError:
        raise MissingExtra("apsw", extra="sqlite", need="a SQLite store") from None
    return apsw


def _extension() -> str:
    try:
        import sqlite_vec  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("sqlite-vec", extra="sqlite", need="a SQLite store") from None
    return str(sqlite_vec.loadable_path())


def file_of(at: str) -> Path:
    """The file that an address names.

    >>> file_of("sqlite:shop/items.db").as_posix()
    'shop/items.db'
    """
    return Path(at.removeprefix("sqlite:"))


class Database:
    """One file, which has to be there: a name that is mistyped makes no new one."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        if not path.is_file():
            raise BadInput("there is no such file", where=path, step="name a database of SQLite")
        self._writing = threading.RLock()
        self._idle: list[Connection] = []
        self._writer: Connection | None = None
        self._left: list[Any] = []
        self._owner = os.getpid()
        self._version: int | None = None
        self.moment = _moment()
        """Another number whenever it was seen that anybody else has committed something."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees the file as it is at one moment."""
        self._at_home()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        with translate_errors(self.name):
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")
                self._idle.append(connection)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one connection that writes, with the file's lock; all of it happens, or nothing.

        `moment` is another one by then if anybody else has committed since this was last asked for.
        """
        self._at_home()
        with self._writing, translate_errors(self.name):
            if self._writer is None:
                self._writer = self._open()
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._look(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # A commit that failed may have ended the transaction itself.
                with suppress(driver().Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def plain(self) -> Iterator[Connection]:
        """A connection outside of any transaction, where files can be attached."""
        self._at_home()
        connection = self._open()
        try:
            with translate_errors(self.name):
                yield connection
        finally:
            connection.close()

    def close(self) -> None:
        self._at_home()
        for connection in (*self._idle, *([] if self._writer is None else [self._writer])):
            connection.close()
        self._idle, self._writer, self._version = [], None, None

    def _look(self, connection: Connection) -> None:
        (found,) = connection.execute("PRAGMA data_version").fetchone()
        if found != self._version:
            self._version, self.moment = found, _moment()

    def _open(self) -> Connection:
        apsw, extension = driver(), _extension()
        with translate_errors(self.name):
            # Without its leave to create one.
            made = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            made.set_busy_timeout(_PATIENCE)
            made.enable_load_extension(True)
            made.load_extension(extension)
            made.enable_load_extension(False)
            # What a file brings along in its schema is not run with our rights.
            made.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            made.execute("PRAGMA trusted_schema = OFF")
            made.execute("PRAGMA synchronous = FULL")
        return made

    def _at_home(self) -> None:
        """A process that was forked off leaves its parent's connections alone, even unclosed."""
        if self._owner != os.getpid():
            self._left += [self._idle, self._writer]
            self._idle, self._writer, self._version = [], None, None
            self._owner, self._writing = os.getpid(), threading.RLock()


def _moment() -> int:
    return secrets.randbits(63)


class translate_errors:
    """Errors of SQLite as ours, with the table's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        apsw = driver()
        if not isinstance(error, apsw.Error):
            return
        said = (str(error).splitlines() or [type(error).__name__])[0][:300]
        if isinstance(error, (apsw.BusyError, apsw.LockedError)):
            raise StoreError(
                "is locked by another connection",
                where=self.name,
                step="let the transaction that holds it end, then try again",
            ) from error
        if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
            raise BadInput(
                f"is no database of SQLite, or is damaged ({said})",
                where=self.name,
                step="check it with PRAGMA integrity_check, or restore a backup",
            ) from error
        if isinstance(error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)):
            raise StoreError(
                f"cannot be written ({said})", where=self.name, step="check its permissions"
            ) from error
        if isinstance(error, apsw.SQLError):
            # A column that has gone, a vector of another length: the store is not what was asked.
            raise BadInput(said, where=self.name) from error
        raise StoreError(said, where=self.name) from error
