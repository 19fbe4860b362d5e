"""One migration at a time, for stores that are folders: a lock the system drops with its owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from crossfade.errors import StoreBusy, StoreError


@contextmanager
def folder_lock(path: Path, name: str) -> Iterator[None]:
    """Hold the file `path`; `StoreError` if another process holds it.

    >>> import tempfile
    >>> with folder_lock(Path(tempfile.mkdtemp()) / "lock", "items"):
    ...     pass
    """
    # The system's own lock (flock where there is one) on a file that stays: it is gone with the
    # process that has it, and other versions of this package ask for the same.
    lock = FileLock(path, mode=0o644, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise held_by_other(name) from None
    except OSError as error:
        raise StoreError(
            f"cannot be written to ({error.strerror})", where=name, step="check its permissions"
        ) from error
    try:
        yield
    finally:
        lock.release()


def held_by_other(name: str) -> StoreBusy:
    """The error of the second of two migrations."""
    return StoreBusy(
        "another process is migrating this store",
        where=name,
        step="wait for it, or stop it first",
    )
