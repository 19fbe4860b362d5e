"""Writing all of a file or folder, or nothing of it."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crossfade.errors import BadInput
from crossfade.files.guards import cannot_write
from crossfade.remote import RemotePath, replacing_remote, to_path

# Of a folder, by which the rest of it is found and checked.
_LAST = ("config.json", "plan.json")


@contextmanager
def replacing(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary name beside `path`; what was made there takes the place of `path` at the end.

    After any exception the temporary file or folder is gone and `path` is as it was. Whoever looks
    at `path` meanwhile sees what was there before, never a part of what is being written.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("done")
    >>> target.read_text()
    'done'
    """
    path = to_path(path)
    refuse_existing(path, overwrite=overwrite)
    if isinstance(path, RemotePath):
        with replacing_remote(path, _LAST) as temporary:
            yield temporary
        return
    check_parent(path)
    # A link is written through, so that it goes on pointing where its owner wanted it to.
    final = path.resolve()
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        try:
            yield temporary
            _sync(temporary)
            refuse_existing(path, overwrite=overwrite)
            _put(temporary, final)
        except OSError as error:
            raise cannot_write(path, error) from error
    except BaseException:
        _remove(temporary)
        raise


def check_parent(path: Path) -> None:
    """Raise if the folder in which `path` is to be is none, or may not be written to."""
    try:
        parent, name = path.resolve().parent, path.resolve().name
        there = parent.is_dir()
    except (OSError, RuntimeError) as error:
        # A name that is too long, or links that lead to themselves.
        raise cannot_write(path, OSError(getattr(error, "errno", None), str(error))) from error
    if not there:
        # Some libraries would make the folder, and a mistyped path deserves an error instead.
        number = errno.ENOTDIR if parent.exists() else errno.ENOENT
        raise cannot_write(path, OSError(number, os.strerror(number)))
    if not name:
        raise cannot_write(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise cannot_write(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise if `path` is there and may not be replaced: a device or a pipe never may."""
    path = to_path(path)
    if isinstance(path, RemotePath):
        if not overwrite and path.exists():
            raise BadInput(
                "already exists", where=path, step="name another file, or add --overwrite"
            )
        return
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadInput("is no plain file", where=path, step="name a file, or '-' for stdout")
    if not overwrite and os.path.lexists(path):
        raise BadInput("already exists", where=path, step="name another file, or add --overwrite")


def _sync(path: Path) -> None:
    """Ask the disk to keep what was written before the name points to it."""
    if path.is_dir():
        for inner in path.rglob("*"):
            if inner.is_file():
                _sync(inner)
    try:
        # Windows syncs what it could write to, and opens no folder.
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except PermissionError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(temporary: Path, final: Path) -> None:
    before: Path | None = None
    if not (temporary.is_dir() and final.exists()):
        temporary.replace(final)
    elif exchange(temporary, final):
        before = temporary
    else:
        # A folder cannot be renamed onto a full one, so the old one steps aside for a moment.
        before = temporary.with_name(f"{temporary.name}.before")
        final.rename(before)
        try:
            temporary.rename(final)
        except OSError:
            before.rename(final)
            raise
    with suppress(OSError):  # Some file systems cannot sync a folder; the rename stands regardless.
        handle = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    if before is not None:
        _remove(before)


def exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step, so that a kill finds one or the other; False where it cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        # Not of Linux: no such function, or no such library.
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
