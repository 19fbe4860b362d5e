"""One migration at a time, for stores that are folders: a lock the system drops with its owner."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossfade.errors import StoreBusy, StoreError


@contextmanager
def folder_lock(path: Path, name: str) -> Iterator[None]:
    """Hold the file `path`; `StoreError` if another process holds it.

    >>> import tempfile
    >>> with folder_lock(Path(tempfile.mkdtemp()) / "lock", "items"):
    ...     pass
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot be written to ({error.strerror})", where=name, step="check its permissions"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise held_by_other(name) from None
        yield
    finally:
        os.close(handle)


def held_by_other(name: str) -> StoreBusy:
    """The error of the second of two migrations."""
    return StoreBusy(
        "another process is migrating this store",
        where=name,
        step="wait for it, or stop it first",
    )
