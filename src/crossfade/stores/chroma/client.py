"""Reaching Chroma: a server, or a folder by the persistent client.

A folder is for one process at a time. Chroma itself does not see to that: each process has the
vectors in a memory of its own, and what another writes is not in there until the folder is opened
again, so a second one reads vectors that are no more and misses rows that are there. All that one
process opens share one engine; whoever opens a folder that another process has open is refused,
where the system can tell (Linux).

The key of a server comes from CHROMA_API_KEY and appears nowhere else. Nothing is reported to
Chroma's makers.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crossfade.errors import BadInput, CrossfadeError, MissingExtra, StoreError
from crossfade.redaction import redact
from crossfade.stores.address import Url, safe_name
from crossfade.stores.chroma.collection import Collection
from crossfade.stores.chroma.rows import beside
from crossfade.stores.names import PREFIX

KEY = "CHROMA_API_KEY"
_SECONDS = 60
DATABASE = "chroma.sqlite3"


@dataclass
class Database:
    """An open client, with the folder it works on if it is no server."""

    client: Any
    name: str
    folder: Path | None
    _open: bool = field(default=True, repr=False)

    def find(self, name: str) -> Collection | None:
        """The collection of this name, if there is one."""
        from chromadb.errors import NotFoundError

        with self.errors():
            try:
                return self._of(self.client.get_collection(name, embedding_function=None))
            except NotFoundError:
                return None

    def by_id(self, uid: str) -> Collection | None:
        """The collection that Chroma knows by this id, whatever its name is by now."""
        from uuid import UUID

        from chromadb.errors import NotFoundError

        with self.errors():
            try:
                return self._of(self.client.get_collection_by_id(UUID(uid)))
            except NotFoundError:
                return None

    def create(
        self, name: str, *, like: Collection | None = None, notes: dict[str, Any] | None = None
    ) -> Collection:
        """A collection that compares and indexes as another one does; it embeds nothing itself."""
        with self.errors():
            made = self.client.create_collection(
                name,
                embedding_function=None,
                configuration=None if like is None else like.settings,
                metadata=notes,
            )
        return self._of(made)

    def remove(self, name: str) -> None:
        """Delete a collection; one that is not there is no error."""
        from chromadb.errors import NotFoundError

        with self.errors():
            try:
                self.client.delete_collection(name)
            except NotFoundError:
                return

    def discard(self, collection: Collection, owner: str) -> None:
        """Delete this very collection: it gets a name that no other has first."""
        gone = f"{beside('ended', owner)}.{secrets.token_hex(6)}"
        collection.rename(gone)
        self.remove(gone)

    def sweep(self, owner: str) -> None:
        """Delete what a killed process has left on its way to being deleted."""
        for name in self._all():
            if name.startswith(f"{beside('ended', owner)}."):
                self.remove(name)

    def names(self) -> list[str]:
        """The application's collections."""
        return sorted(name for name in self._all() if not name.startswith(PREFIX))

    def _all(self) -> list[str]:
        with self.errors():
            return [one.name for one in self.client.list_collections()]

    def errors(self) -> Any:
        """Errors of the client as ours."""
        return translate_errors(self.name)

    def close(self) -> None:
        """Let go of the client; the last one to do so closes the folder."""
        if self._open:
            self._open = False
            for session in _sessions(self.client) if self.folder is None else ():
                session.close()
            self.client.close()

    def _of(self, handle: Any) -> Collection:
        return Collection(handle, self.name, self.errors)


def connect(url: str) -> Database:
    """The Chroma at `chroma+http://host:port`, `chroma+https://host:port` or `chroma:FOLDER`.

    Behind the host there may be `/TENANT/DATABASE`.
    """
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        folder = Path(rest).resolve()
        if not (folder / DATABASE).is_file():
            raise BadInput(
                "is no folder of Chroma", where=url, step="name one, or chroma+http://HOST:PORT"
            )
        return Database(local_client(folder), f"chroma:{rest}", folder)
    name, found = safe_name(url), Url.of(url)
    if scheme == "chroma":
        raise BadInput("is no folder", where=name, step="name a server as chroma+http://HOST:PORT")
    if found.user or found.password is not None or found.query:
        raise BadInput(
            "the address holds more than a host", where=name, step=f"put the key into {KEY}"
        )
    parts = urlsplit(url)
    within = [part for part in parts.path.split("/") if part]
    if len(within) not in (0, 2):
        raise BadInput(
            "a path that is no tenant and database", where=name, step="write /TENANT/DATABASE"
        )
    secure, key = scheme == "chroma+https", os.environ.get(KEY, "")
    chromadb = _library()
    with translate_errors(name):
        client = chromadb.HttpClient(
            host=parts.hostname or "localhost",
            port=parts.port or (443 if secure else 8000),
            ssl=secure,
            headers={"x-chroma-token": key} if key else None,
            settings=_quiet(secure),
            **dict(zip(("tenant", "database"), within, strict=True)) if within else {},
        )
    for session in _sessions(client):
        session.timeout = _SECONDS
    return Database(client, name, None)


def local_client(folder: str | Path) -> Any:
    """This process's client of a folder, for an application that works on it beside a migration.

    An application may as well open a `PersistentClient` of its own, as long as it does so first:
    the engine that is there is shared, whatever its settings.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> one, two = local_client(folder), local_client(folder)
    >>> one.create_collection("items").name, [found.name for found in two.list_collections()]
    ('items', ['items'])
    >>> one.close(), two.close()
    (None, None)
    """
    _library()
    from chromadb.api.client import Client

    folder = Path(folder).resolve()
    engine = _engine(folder)
    with translate_errors(f"chroma:{folder}"):
        if engine is not None:
            return Client.from_system(engine)
        refuse_held(folder)
        return _library().PersistentClient(str(folder), settings=_quiet())


def refuse_held(folder: Path) -> None:
    """Raise if another process, or a second engine of this one, has the folder open."""
    step = "stop it, or run a Chroma server (chroma run), which many can use at once"
    if _opened_elsewhere(folder / DATABASE):
        raise StoreError(
            "another process has this folder open", where=f"chroma:{folder}", step=step
        )
    _engine(folder)


def _engine(folder: Path) -> Any:
    """The engine that this process has on a folder, under whatever path it was opened."""
    from chromadb.api.shared_system_client import SharedSystemClient

    found = [
        system
        for system in list(SharedSystemClient._identifier_to_system.values())
        if system.settings.is_persistent
        and Path(system.settings.persist_directory).resolve() == folder
    ]
    if len(found) > 1:
        raise StoreError(
            "this process has opened the folder twice, by two paths",
            where=f"chroma:{folder}",
            step="open it by crossfade.stores.chroma.client.local_client, or by one path",
        )
    return found[0] if found else None


def _opened_elsewhere(database: Path) -> bool:
    """Whether another process of this system has the file open, as far as one may look."""
    own = os.getpid()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == own:
            continue
        try:
            if any(handle.readlink() == database for handle in (process / "fd").iterdir()):
                return True
        except OSError:
            # It has ended, or is another user's.
            continue
    return False


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Errors of the client as ours, with the name of the place and without the key."""
    try:
        yield
    except CrossfadeError:
        raise
    except Exception as error:
        if not _is_of_client(error):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        said = redact(said, [os.environ.get(KEY, "")])
        raise StoreError(said[:300], where=name, step="check that Chroma is there") from None


def _is_of_client(error: Exception) -> bool:
    """Errors of Chroma, of the way to a server, and what the client raises in their place."""
    module = type(error).__module__
    return module.startswith(("chromadb", "httpx", "httpcore", "pyo3")) or isinstance(
        error, (OSError, ValueError, TypeError, RuntimeError, LookupError)
    )


def _sessions(client: Any) -> list[Any]:
    """A client's connections to its server: it never closes them itself, and waits for ever."""
    found = [getattr(one._server, "_session", None) for one in (client, client._admin_client)]
    return [session for session in found if session is not None]


def _quiet(secure: bool = True) -> Any:
    """Settings. To open a way to a server takes a fifth of a second for the certificates alone, for
    which there is no use without TLS."""
    from chromadb.config import Settings

    if secure:
        return Settings(anonymized_telemetry=False)
    return Settings(anonymized_telemetry=False, chroma_server_ssl_verify=False)


def _library() -> Any:
    try:
        import chromadb
    except ImportError as error:
        raise MissingExtra("chromadb", extra="chroma", need="a Chroma store") from error
    return chromadb
