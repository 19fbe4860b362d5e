"""Where a store on a disk is copied to in part, for a trial: a hidden folder beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossfade.files.guards import cannot_write

PREFIX = ".crossfade-trial-"


@contextmanager
def folder_beside(table: Path) -> Iterator[Path]:
    """A folder next to a table, and so on the same disk; gone at the end with all that is in it."""
    place = table.resolve().parent
    try:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    except OSError as error:
        raise cannot_write(place, error) from error
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder.

    >>> with folder_beside(Path(tempfile.gettempdir()) / "items") as made:
    ...     _ = (made / "a").write_bytes(b"four")
    ...     folder_bytes(made)
    4
    """
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
