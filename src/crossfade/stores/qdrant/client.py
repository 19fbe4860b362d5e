"""Reaching Qdrant: a server, or a folder in the client's local mode.

The key of a server comes from QDRANT_API_KEY and appears nowhere else. In local mode a folder can
have one client at a time; all that a process opens share it, and so may the application itself.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crossfade.errors import BadInput, CrossfadeError, MissingExtra, StoreError
from crossfade.redaction import redact
from crossfade.stores.address import Url, safe_name
from crossfade.stores.names import PREFIX

KEY = "QDRANT_API_KEY"
_SECONDS = 60
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass
class _Shared:
    client: Any
    users: int = 0


_local: dict[Path, _Shared] = {}


@dataclass
class Database:
    """An open client, with the folder it works on in local mode."""

    client: Any
    name: str
    folder: Path | None
    _open: bool = field(default=True, repr=False)

    def close(self) -> None:
        """Let go of the client; the last one to do so closes it."""
        if not self._open:
            return
        self._open = False
        if self.folder is None:
            self.client.close()
        else:
            release(self.folder)


def connect(url: str) -> Database:
    """The Qdrant at `qdrant://host:port`, `qdrant+https://host:port` or `qdrant:FOLDER`."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        folder = Path(rest).resolve()
        if not (folder / "meta.json").is_file():
            raise BadInput(
                "is no folder of a local Qdrant", where=url, step="name one, or qdrant://HOST:PORT"
            )
        return Database(local_client(folder), f"qdrant:{rest}", folder)
    name, found = safe_name(url), Url.of(url)
    if found.user or found.password is not None or found.query:
        raise BadInput(
            "the address holds more than a host", where=name, step=f"put the key into {KEY}"
        )
    secure = scheme == "qdrant+https"
    with translate_errors(name), warnings.catch_warnings():
        parts = urlsplit(url)
        if parts.hostname in _LOOPBACK:
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection")
        client = _library().QdrantClient(
            url=f"{'https' if secure else 'http'}://{parts.netloc}{parts.path}",
            port=6333 if parts.port is None else parts.port,
            api_key=os.environ.get(KEY) or None,
            timeout=_SECONDS,
            check_compatibility=False,
        )
    return Database(client, name, None)


def collections_at(url: str) -> list[str]:
    """The application's collections, for a message that asks for one of them."""
    database = connect(url)
    try:
        with translate_errors(database.name):
            found = database.client.get_collections().collections
    finally:
        database.close()
    return sorted(one.name for one in found if not one.name.startswith(PREFIX))


def local_client(folder: str | Path) -> Any:
    """This process's client of a folder, for an application that works on it beside a migration.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> local_client(folder) is local_client(folder)
    True
    >>> release(folder), release(folder)
    (None, None)
    """
    folder = Path(folder).resolve()
    if folder not in _local:
        _refuse_held(folder)
        with translate_errors(f"qdrant:{folder}"):
            _local[folder] = _Shared(_library().QdrantClient(path=str(folder)))
    _local[folder].users += 1
    return _local[folder].client


def release(folder: str | Path) -> None:
    """Let go of a client of `local_client`."""
    shared = _local[Path(folder).resolve()]
    shared.users -= 1
    if not shared.users:
        shared.client.close()
        del _local[Path(folder).resolve()]


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
        source = getattr(error, "source", error)
        said = " ".join(str(source).split()) or type(source).__name__
        said = redact(said, [os.environ.get(KEY, "")])
        raise StoreError(said[:300], where=name, step="check that Qdrant is there") from None


def models_of(client: Any) -> Any:
    """What calls of a client are made of: the classes of Qdrant's own one, or those that another
    client brings along (the engine in process has no need of a library for servers)."""
    own = getattr(client, "models", None)
    if own is None:
        from qdrant_client import models as own
    return own


def status_of(error: BaseException) -> int | None:
    """The HTTP status in an error of the client."""
    code = getattr(error, "status_code", None)
    return code if isinstance(code, int) else None


def _is_of_client(error: Exception) -> bool:
    """Errors of a server, of the way to it, and what local mode raises in their place, also where
    another thread changes its arrays."""
    module = type(error).__module__
    return module.startswith(("qdrant_client", "httpx", "sqlite3")) or isinstance(
        error, (OSError, ValueError, RuntimeError, LookupError)
    )


def _refuse_held(folder: Path) -> None:
    _library()
    # What the client itself locks with, on every system; it comes with it.
    import portalocker

    try:
        with (folder / ".lock").open("r+") as handle:
            portalocker.lock(
                handle, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
            )
    except FileNotFoundError:
        return
    except portalocker.exceptions.LockException:
        raise StoreError(
            "another process has this folder open",
            where=f"qdrant:{folder}",
            step="stop it, or run a Qdrant server, which many can use at once",
        ) from None


def _library() -> Any:
    try:
        import qdrant_client
    except ImportError as error:
        raise MissingExtra("qdrant-client", extra="qdrant", need="a Qdrant store") from error
    return qdrant_client
