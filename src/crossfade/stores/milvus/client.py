"""Reaching Milvus: a server, or a file of milvus-lite, which is a server inside this process.

The token of a server comes from MILVUS_TOKEN and appears nowhere else. One process has a file of
milvus-lite open at a time; all that a process opens share its server, and so does the application
itself if it is the same process.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crossfade.errors import BadInput, CrossfadeError, MissingExtra, StoreBusy, StoreError
from crossfade.redaction import redact
from crossfade.stores.address import Url, safe_name
from crossfade.stores.names import PREFIX, check_name

KEY = "MILVUS_TOKEN"
_SECONDS = 60.0
# What goes through all rows.
_LONG = 3600.0
_NOT_FOUND = (100, 1600)
_NOT_LOADED, _STUCK = "call load()", "current_seq is monotonic"
_local: dict[Path, int] = {}
_borrowed: set[Path] = set()


@dataclass
class Database:
    """An open client, with the file it works on where that is milvus-lite's."""

    client: Any
    name: str
    file: Path | None
    _open: bool = field(default=True, repr=False)

    def call(self, method: str, *given: Any, **named: Any) -> Any:
        """One call of the client, for so long and no longer."""
        try:
            return self._call(method, *given, **named)
        except StoreError as error:
            if self.file is None or not self._mended(str(error), given):
                raise
            return self._call(method, *given, **named)

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        seconds = _LONG if method in ("flush", "load_collection") else _SECONDS
        with translate_errors(self.name):
            return getattr(self.client, method)(*given, timeout=seconds, **named)

    def _mended(self, said: str, given: tuple[Any, ...]) -> bool:
        """Whether what milvus-lite said no to for a reason of its own can be asked for again.

        A collection that was renamed, or opened by a new process, is not loaded. And one whose
        process was killed between writing its rows and forgetting its log takes them for older than
        what it has, and cannot be closed, dropped or renamed until something newer is in its log.
        """
        if _NOT_LOADED in said:
            self._call("load_collection", given[0])
        elif _STUCK in said:
            fields = self._call("describe_collection", given[0])["fields"]
            key = next(field for field in fields if field.get("is_primary"))
            # Of a row that is not there: nobody has an id of so many digits made by lot.
            text = "max_length" in key["params"]
            nobody = secrets.token_hex(16) if text else -secrets.randbits(62) - 2**62
            self._call("delete", given[0], ids=[nobody])
        else:
            return False
        return True

    def alias_target(self, name: str) -> str | None:
        """The collection that an alias stands for; None where there is no such alias."""
        try:
            return str(self.call("describe_alias", name)["collection_name"])
        except _Gone:
            return None

    def close(self) -> None:
        """Let go of the client; the last one of a file to do so closes it."""
        if not self._open:
            return
        self._open = False
        self.client.close()
        if self.file is not None:
            _let_go(self.file)


class _Gone(StoreError):
    """What was asked for is not there."""


def connect(url: str) -> Database:
    """The Milvus at `milvus+http://host:port/database`, `milvus+https://…` or `milvus:FILE.db`."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        file = Path(rest).resolve()
        if file.suffix != ".db" or not (file / "collections").is_dir():
            raise BadInput(
                "is no file of milvus-lite 3",
                where=url,
                step="name one that ends in .db, or milvus+http://HOST:PORT",
            )
        return Database(local_client(file), f"milvus:{rest}", file)
    name, found = safe_name(url), Url.of(url)
    if found.user or found.password is not None or found.query:
        raise BadInput(
            "the address holds more than a host and a database",
            where=name,
            step=f"put user:password, or a key, into {KEY}",
        )
    if scheme == "milvus":
        raise BadInput(
            "does not say how to reach the server", where=name, step="name milvus+http://HOST:PORT"
        )
    parts = urlsplit(url)
    database = parts.path.strip("/")
    reached = f"{scheme.partition('+')[2]}://{parts.netloc}"
    if parts.port is None:
        reached += ":19530"
    library = _library()
    with translate_errors(name):
        client = library.MilvusClient(
            uri=reached,
            token=os.environ.get(KEY, ""),
            db_name=check_name(database, "database") if database else "",
            timeout=_SECONDS,
        )
    return Database(client, name, None)


def collections_at(url: str) -> list[str]:
    """The application's collections, for a message that asks for one of them."""
    database = connect(url)
    try:
        found = database.call("list_collections")
    finally:
        database.close()
    return sorted(name for name in found if not name.startswith(PREFIX))


def local_client(file: str | Path) -> Any:
    """A client of a file of milvus-lite, for an application that works on it beside a migration.

    All clients of a process share one server, which runs until the last has been given back by
    `release`; one that the application started by itself is left running.
    """
    file = Path(file).resolve()
    library = _library()
    if file not in _local:
        from milvus_lite.server_manager import (  # type: ignore[import-untyped]
            server_manager_instance,
        )

        if str(file) in getattr(server_manager_instance, "_servers", {}):
            _borrowed.add(file)
    try:
        with translate_errors(f"milvus:{file}"):
            client = library.MilvusClient(uri=str(file))
    except StoreError:
        if _is_locked(file):
            raise StoreBusy(
                "another process has this file open",
                where=f"milvus:{file}",
                step="stop it, or run a Milvus server, which many can use at once",
            ) from None
        raise
    _local[file] = _local.get(file, 0) + 1
    return client


def release(file: str | Path, client: Any) -> None:
    """Give back a client of `local_client`."""
    client.close()
    _let_go(Path(file).resolve())


def _let_go(file: Path) -> None:
    _local[file] -= 1
    if _local[file]:
        return
    del _local[file]
    if file in _borrowed:
        _borrowed.discard(file)
        return
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(str(file))


def _is_locked(file: Path) -> bool:
    """Whether somebody has the lock of milvus-lite; this process has not, or it would be open."""
    from milvus_lite.db import MilvusLite  # type: ignore[import-untyped]
    from milvus_lite.exceptions import DataDirLockedError  # type: ignore[import-untyped]

    try:
        MilvusLite(str(file)).close()
    except DataDirLockedError:
        return True
    return False


_quiet = threading.local()


class _Unsaid(logging.Filter):
    """Drops what the client logs of errors that are told as ours anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_quiet, "depth", 0)


_UNSAID = _Unsaid()


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Errors of the client as ours, with the name of the place and without the token."""
    for logger in ("pymilvus.decorators", "milvus_lite.server_manager"):
        logging.getLogger(logger).addFilter(_UNSAID)
    _quiet.depth = getattr(_quiet, "depth", 0) + 1
    try:
        yield
    except CrossfadeError:
        raise
    except Exception as error:
        if not _is_of_client(error):
            raise
        said = getattr(error, "message", "") or getattr(error, "_message", "") or str(error)
        said = redact(" ".join(str(said).split()) or type(error).__name__, _secrets())
        kind = _Gone if getattr(error, "code", None) in _NOT_FOUND else StoreError
        raise kind(said[:300], where=name, step="check that Milvus is there") from None
    finally:
        _quiet.depth -= 1


def _secrets() -> list[str]:
    token = os.environ.get(KEY, "")
    return [token, token.partition(":")[2]]


def _is_of_client(error: Exception) -> bool:
    """Errors of a server and of the way to it."""
    return type(error).__module__.startswith(("pymilvus", "grpc", "milvus_lite")) or isinstance(
        error, (OSError, ValueError)
    )


def _library() -> Any:
    try:
        import pymilvus  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("pymilvus", extra="milvus", need="a Milvus store") from error
    return pymilvus
