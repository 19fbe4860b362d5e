"""What the demo leaves behind, for the reader to look at and go on with."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from crossfade.artefact import check_target
from crossfade.demo.picture import draw
from crossfade.demo.story import Embedded, Story
from crossfade.errors import BadInput
from crossfade.files import replacing
from crossfade.files.guards import cannot_write

UPGRADE, PAIRS, TEST, TABLE, PICTURE = (
    "upgrade",
    "pairs.npz",
    "test.npz",
    "demo.json",
    "spaces.png",
)


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be filled, before the work that would fill it."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("is a file, not a folder", where=folder, step="name another folder")
    check_writable(folder, folder if folder.exists() else folder.parent)
    if folder.exists():
        check_target(folder / UPGRADE, overwrite=True)
        for name in (PAIRS, TEST, TABLE, PICTURE):
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


def fill(folder: Path, story: Story) -> None:
    """Write the upgrade, both sets of vectors, the numbers and the picture into `folder`.

    Files of an earlier run are replaced; anything else in the folder is left alone.
    """
    with _made(folder):
        story.upgrade.save(folder / UPGRADE, overwrite=True)
        _save(folder / PAIRS, story.train)
        _save(folder / TEST, story.test)
        with replacing(folder / TABLE, overwrite=True) as temporary:
            text = json.dumps(story.record(), indent=2, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")
        with replacing(folder / PICTURE, overwrite=True) as temporary:
            temporary.write_bytes(draw(story.spaces))


def _save(path: Path, rows: Embedded) -> None:
    with replacing(path, overwrite=True) as temporary, temporary.open("wb") as file:
        np.savez(file, old=rows.old, new=rows.new, labels=rows.labels)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
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
