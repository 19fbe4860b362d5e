"""One migration at a time: for stores that are folders a lock the system drops with its owner, and
elsewhere a lease that runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from crossfade.errors import StoreBusy, StoreError
from crossfade.threads import every


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


@contextmanager
def renewed(seconds: float, renew: Callable[[], bool], name: str) -> Iterator[None]:
    """Renew a lease of so many seconds while this lasts; `renew` says whether it was still held.
    `StoreError` at the end if it was not."""
    lost = threading.Event()

    def act() -> bool:
        # A server that is away for a moment is no reason to give up; one that gave the lease to
        # another is.
        with suppress(StoreError):
            if not renew():
                lost.set()
        return not lost.is_set()

    with every(seconds / 4, act):
        yield
    if lost.is_set():
        raise StoreError(
            "the right to migrate passed to another process, for this one was away too long",
            where=name,
            step="look at the status, then run the step again",
        )


def held_by_other(name: str) -> StoreBusy:
    """The error of the second of two migrations."""
    return StoreBusy(
        "another process is migrating this store",
        where=name,
        step="wait for it, or stop it first",
    )
