"""A folder of Parquet files in an object store: what is kept beside it, and `promote` there.

In an object store a name can be taken by two who do not know of each other. So a batch is written
under a name that nobody else can have, and counts when the ledger lists it: whoever has lost the
lease meanwhile can write as many as he likes, and none of them does.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossfade.errors import StoreError
from crossfade.files import replacing
from crossfade.remote import RemotePath
from crossfade.stores.ledger import Ledger
from crossfade.stores.parquet.base import STEP, base_paths
from crossfade.stores.parquet.delta import Sidecar, needed, span
from crossfade.stores.parquet.promote import Promotion, Ready, Shared, rewrite
from crossfade.stores.parquet.rows import WRITTEN_ONCE, Changed, Signature, opened, signature

_COLUMNS, _DELTAS, _PROMOTE = "columns", "deltas", "promote"
MARK = b"crossfade.promoted"


class LedgerSidecar(Sidecar):
    """Columns and the list of batches in the ledger, the batches themselves as objects."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        super().__init__(folder)
        self.ledger = ledger

    def drop(self, names: Any) -> None:
        told = self._told()
        kept = {n: c for n, c in told["columns"].items() if n not in names}
        gone = [] if kept else self._paths()
        if kept != told["columns"]:
            self._tell({**told, "columns": kept})
        if not kept:
            self.ledger.put(_DELTAS, None)
        for path in gone:
            path.unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what a killed process, or one that lost its lease, has written in vain."""
        listed = {path.name for path in self._paths()}
        for path in self.folder.iterdir():
            if path.name not in listed and _is_delta(path):
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        paths = self._paths()
        over = set(paths) - set(needed(paths))
        if over:
            names = {path.name for path in over}
            self.ledger.change(lambda values: values | {_DELTAS: _without(values, names)})
        for path in over:
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self.folder / name for name in _listed(self.ledger.get(_DELTAS)))

    def _signature(self, path: Path) -> Signature:
        return WRITTEN_ONCE

    @contextmanager
    def _adding(self, first: int, last: int) -> Iterator[Path]:
        name = f"{first:08d}-{last:08d}-{secrets.token_hex(8)}.parquet"
        with replacing(self.folder / name) as temporary:
            yield temporary

        def listed(values: dict[str, str]) -> dict[str, str]:
            names = _listed(values.get(_DELTAS))
            if first == last and any(span(Path(one))[1] >= first for one in names):
                # Someone else wrote meanwhile: what was read is out of date.
                raise Changed
            return values | {_DELTAS: json.dumps([*names, name])}

        self.ledger.change(listed)

    def _told(self) -> dict[str, Any]:
        text = self.ledger.get(_COLUMNS)
        return {"serial": 0, "columns": {}} if text is None else dict(json.loads(text))

    def _tell(self, told: Mapping[str, Any]) -> None:
        self.ledger.put(_COLUMNS, json.dumps(told))


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [str(name) for name in json.loads(text)]


def _without(values: Mapping[str, str], names: set[str]) -> str:
    return json.dumps([name for name in _listed(values.get(_DELTAS)) if name not in names])


def _is_delta(path: Path) -> bool:
    try:
        span(path)
    except StoreError:
        return False
    return True


class RemotePromotion(Promotion):
    """The switch of files that cannot be renamed: each is written over, after a copy was kept.

    Which of them are done is told by a mark in the files themselves. One that the application puts
    there in the instant between the last look and the writing is lost; `old` has what it replaced.
    """

    def __init__(self, folder: Path, side: Path, ledger: Ledger) -> None:
        super().__init__(folder, side)
        object.__setattr__(self, "ledger", ledger)

    ledger: Ledger

    @property
    def begun(self) -> bool:
        return self.ledger.get(_PROMOTE) is not None

    def begin(self, old_dim: int) -> None:
        if not self.begun:
            told = {"dropping": False, "old_dim": old_dim, "files": {}, "run": secrets.token_hex(8)}
            self._tell(told)

    def drop(self) -> None:
        if self.begun:
            self._tell(self._told() | {"dropping": True})
            self._remove()

    def end(self) -> None:
        self.ledger.put(_PROMOTE, None)

    def undo(self) -> None:
        for path in base_paths(self.folder):
            before: Any = self.side / "old" / path.name
            # One that is there by now in place of ours is the application's, and newer.
            if self.done(path) and before.exists():
                before.copy_to(path)
        self._remove()
        self.end()

    def foreign(self) -> list[Path]:
        known = self._told()["files"]
        return [
            path
            for path in base_paths(self.folder)
            if not self.done(path)
            and list(signature(path)) != known.get(path.name, {}).get("before")
        ]

    def _write(self, path: Path, id: str, vector: str, ready: Ready, shared: Shared) -> bool:
        fresh = self.side / "fresh" / path.name
        try:
            before = signature(path)
            if not ready(path):
                return False
            mark = {MARK: str(self._told()["run"]).encode()}
            rewrite(path, before, fresh, id, vector, shared, mark)
        except (Changed, FileNotFoundError):
            return True
        told = self._told()
        self._tell(told | {"files": told["files"] | {path.name: {"before": list(before)}}})
        return True

    def _put(self, path: Any) -> None:
        fresh: Any = self.side / "fresh" / path.name
        marks = self._told()["files"].get(path.name)
        if not marks or not fresh.exists():
            return
        try:
            if list(signature(path)) != marks["before"]:
                return
            path.copy_to(self.side / "old" / path.name)
            self.ledger.check()
            fresh.copy_to(path)
        except FileNotFoundError:
            return
        fresh.unlink(missing_ok=True)

    def done(self, path: Path) -> bool:
        run = self._told().get("run")
        try:
            with opened(path, signature(path), step=STEP) as file:
                found = (file.schema_arrow.metadata or {}).get(MARK)
        except FileNotFoundError:
            return True
        return run is not None and found == str(run).encode()

    def _remove(self) -> None:
        for name in ("old", "fresh"):
            folder = self.side / name
            if isinstance(folder, RemotePath):
                folder.remove_folder()

    def _told(self) -> dict[str, Any]:
        text = self.ledger.get(_PROMOTE)
        if text is None:
            return {"dropping": False, "old_dim": 0, "files": {}}
        return dict(json.loads(text))

    def _tell(self, told: dict[str, Any]) -> None:
        self.ledger.put(_PROMOTE, json.dumps(told))
