"""The folder a demo fills, for the reader to look at and go on with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crossfade.errors import BadInput
from crossfade.files.guards import cannot_write
from crossfade.upgrade.artefact import check_target

UPGRADE = "upgrade"


def check_folder(folder: Path, files: Sequence[str]) -> None:
    """Refuse a folder that could not be filled, before the work that would fill it."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("is a file, not a folder", where=folder, step="name another folder")
    check_writable(folder, folder if folder.exists() else folder.parent)
    if folder.exists():
        check_target(folder / UPGRADE, overwrite=True)
        for name in files:
            if (folder / name).is_dir():
                raise BadInput("is a folder", where=folder / name, step="name another folder")


def check_writable(path: Path, place: Path) -> None:
    """Refuse `path` if nothing can be written in `place`.

    >>> check_writable(Path("demo"), Path(tempfile.gettempdir()))
    """
    try:
        # Permissions alone do not tell: the disk may be read-only, or no disk at all.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """The folder is there inside; if it was not before and something fails, it is gone again."""
    before = folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield
    except BaseException:
        if not before:
            shutil.rmtree(folder, ignore_errors=True)
        raise
