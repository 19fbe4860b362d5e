"""`promote` of an index: one of the shared vectors changes places with it, in one step of the file
system, and the old one stays beside until all is done.

    promote.json    what the file was before, what it is since, whether the old one may go
    beside.index    the new index until they change places, then the old one

What came out is looked at: an index that the application put there in the same instant goes back,
and is done anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossfade.files import replacing
from crossfade.files.atomic import exchange
from crossfade.stores.parquet.rows import signature
from crossfade.stores.values import read_kept


@dataclass(frozen=True)
class Switch:
    """The switch of one file, as far as it has come."""

    path: Path
    side: Path

    @property
    def begun(self) -> bool:
        return self._note.exists()

    @property
    def dropping(self) -> bool:
        """Whether the old index is on its way out, and there is no way back."""
        return bool(self._told()["dropping"])

    @property
    def old_dim(self) -> int:
        return int(self._told()["old_dim"])

    @property
    def done(self) -> bool:
        """Whether the file is the new one that was put there."""
        return bool(list(signature(self.path)) == self._told()["after"])

    def begin(self, old_dim: int) -> None:
        if not self.begun:
            self._tell({"dropping": False, "old_dim": old_dim, "before": [], "after": []})
        self._gather()

    def put(self, before: tuple[int, int, int]) -> bool:
        """Let `beside.index` change places with the file; False if that was not `before`."""
        self._sync()
        ours = list(signature(self.beside))
        self._tell(self._told() | {"before": list(before), "after": ours})
        target = self.path.resolve()
        if not exchange(self.beside, target):
            # No such step on this system: one that comes in the instant between is lost.
            os.link(target, self._kept)
            self.beside.replace(target)
            self._kept.replace(self.beside)
        while list(signature(self.beside)) not in (list(before), ours):
            # The application was first: its file goes back, and ours comes out.
            exchange(self.beside, target)
        _sync_folder(target.parent)
        return list(signature(self.beside)) == list(before)

    def drop(self) -> None:
        """Let the old index go. From here on there is no way back."""
        if self.begun:
            self._tell(self._told() | {"dropping": True})
            self.beside.unlink(missing_ok=True)
            self._kept.unlink(missing_ok=True)

    def end(self) -> None:
        self._note.unlink(missing_ok=True)

    def undo(self) -> None:
        """The application's own file in its place again."""
        if self.begun:
            self._gather()
            if self.done and list(signature(self.beside)) == self._told()["before"]:
                self.beside.replace(self.path.resolve())
                _sync_folder(self.path.resolve().parent)
        self.beside.unlink(missing_ok=True)
        self.end()

    @property
    def beside(self) -> Path:
        return self.side / "beside.index"

    @property
    def _kept(self) -> Path:
        return self.side / "kept.index"

    @property
    def _note(self) -> Path:
        return self.side / "promote.json"

    def _gather(self) -> None:
        """Where two files cannot change places, the old one may wait to get its name."""
        if self._kept.exists():
            self._kept.replace(self.beside)

    def _sync(self) -> None:
        """What changes places is on the disk before."""
        handle = os.open(self.beside, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _told(self) -> dict[str, Any]:
        nothing = {"dropping": False, "old_dim": 0, "before": [], "after": []}
        return nothing | (read_kept(self._note) or {})

    def _tell(self, told: dict[str, Any]) -> None:
        with replacing(self._note, overwrite=True) as temporary:
            temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
