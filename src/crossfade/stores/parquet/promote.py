"""`promote` on Parquet files: shared vectors in the place of the old ones, and back again.

    _crossfade/promote.json   which file was what before, and what it is since
    _crossfade/fresh/         files with shared vectors, until they are in place
    _crossfade/old/           the application's own files, until all others are in place

A file and its successor change places in one step of the file system, and what came out is looked
at: one that the application put there in the same instant goes back, and is done anew. So no file
of the application is lost, and as long as `old` is there all of it can be undone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossfade.files import replacing
from crossfade.files.atomic import exchange
from crossfade.stores.parquet.base import STEP, base_paths
from crossfade.stores.parquet.rows import Changed, id_array, opened, signature
from crossfade.stores.values import read_kept

Shared = Callable[[pa.Array], pa.Array]
"""The shared vectors of some ids."""
Ready = Callable[[Path], bool]
"""Brings the shared vectors of a file's rows up to date; False for a file to be left alone."""


@dataclass(frozen=True)
class Promotion:
    """The switch of a folder from old files to new ones, as far as it has come."""

    folder: Path
    side: Path

    @property
    def begun(self) -> bool:
        return self._note.exists()

    @property
    def dropping(self) -> bool:
        """Whether old files are on their way out, and there is no way back."""
        return bool(self._told()["dropping"])

    @property
    def old_dim(self) -> int:
        """How long old vectors are: in the middle of it the folder cannot tell."""
        return int(self._told()["old_dim"])

    def begin(self, old_dim: int) -> None:
        for name in ("fresh", "old"):
            (self.side / name).mkdir(exist_ok=True)
        if not self.begun:
            self._tell({"dropping": False, "old_dim": old_dim, "files": {}})
        self._gather()

    def switch(self, id: str, vector: str, ready: Ready, shared: Shared) -> None:
        """Put every file of the folder in place; those that come meanwhile, too.

        All are written before the first is put in place, so that the folder holds two kinds of
        files for no longer than renaming takes.
        """
        while True:
            waiting = [path for path in base_paths(self.folder) if not self.done(path)]
            written = [path for path in waiting if self._write(path, id, vector, ready, shared)]
            if not written:
                return
            for path in written:
                self._put(path)

    def drop(self) -> None:
        """Let the old files go. From here on there is no way back."""
        if self.begun:
            self._tell(self._told() | {"dropping": True})
            for name in ("old", "fresh"):
                shutil.rmtree(self.side / name, ignore_errors=True)

    def end(self) -> None:
        self._note.unlink(missing_ok=True)

    def undo(self) -> None:
        """Every file of the application in its place again."""
        self._gather()
        # One that is there by now in place of ours is the application's, and newer.
        for path in base_paths(self.folder):
            before = self.side / "old" / path.name
            if self.done(path) and before.exists():
                before.replace(path.resolve())
                _sync_folder(path.resolve().parent)
        for name in ("old", "fresh"):
            shutil.rmtree(self.side / name, ignore_errors=True)
        self.end()

    def done(self, path: Path) -> bool:
        """Whether a file is the one that was put in its place, or gone."""
        marks = self._told()["files"].get(path.name)
        with suppress(FileNotFoundError):
            return marks is not None and list(signature(path)) == marks["after"]
        return True

    def foreign(self) -> list[Path]:
        """Files that are neither ours nor what they were before."""
        known = self._told()["files"]
        return [
            path
            for path in base_paths(self.folder)
            if list(signature(path)) not in known.get(path.name, {}).values()
        ]

    def _write(self, path: Path, id: str, vector: str, ready: Ready, shared: Shared) -> bool:
        """Write what is to take a file's place; False if it is to be left alone."""
        fresh = self.side / "fresh" / path.name
        try:
            before = signature(path)
            if not ready(path):
                return False
            rewrite(path, before, fresh, id, vector, shared)
        except (Changed, FileNotFoundError):
            # Replaced or deleted meanwhile: listed again, it is what it is by then.
            return True
        told = self._told()
        marks = {"before": list(before), "after": list(signature(fresh))}
        self._tell(told | {"files": told["files"] | {path.name: marks}})
        return True

    def _put(self, path: Path) -> None:
        fresh, marks = self.side / "fresh" / path.name, self._told()["files"].get(path.name)
        with suppress(FileNotFoundError):
            if marks and fresh.exists() and list(signature(path)) == marks["before"]:
                self._exchange(fresh, path.resolve(), marks["before"])

    def _exchange(self, fresh: Path, path: Path, before: list[int]) -> None:
        ours = list(signature(fresh))
        if not exchange(fresh, path):
            # No such step on this system: one that comes in the instant between is lost.
            self._keep(path, fresh.name)
            fresh.replace(path)
        elif list(signature(fresh)) == before:
            fresh.replace(self.side / "old" / fresh.name)
        else:
            while list(signature(fresh)) != ours:
                exchange(fresh, path)
            fresh.unlink()
        _sync_folder(path.parent)

    def _keep(self, path: Path, name: str) -> None:
        kept = self.side / "old" / name
        kept.unlink(missing_ok=True)
        try:
            os.link(path, kept)
        except OSError:
            shutil.copy2(path, kept)

    def _gather(self) -> None:
        """After a kill between a change of places and what follows, an old file is in `fresh`."""
        for path in base_paths(self.folder):
            marks = self._told()["files"].get(path.name)
            fresh = self.side / "fresh" / path.name
            if marks and fresh.exists() and list(signature(fresh)) == marks["before"]:
                fresh.replace(self.side / "old" / path.name)

    @property
    def _note(self) -> Path:
        return self.side / "promote.json"

    def _told(self) -> dict[str, Any]:
        return read_kept(self._note) or {"dropping": False, "old_dim": 0, "files": {}}

    def _tell(self, told: dict[str, Any]) -> None:
        with replacing(self._note, overwrite=True) as temporary:
            temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def rewrite(
    path: Path,
    before: Any,
    fresh: Path,
    id: str,
    vector: str,
    shared: Shared,
    mark: dict[bytes, bytes] | None = None,
) -> None:
    """Write a file with shared vectors in place of the old ones, and perhaps a mark."""
    with opened(path, before, step=STEP) as source:
        groups = range(source.metadata.num_row_groups)
        ids = [id_array(source.read_row_group(group, [id])[id]) for group in groups]
        schema = source.schema_arrow
        at = schema.get_field_index(vector)
        kind = shared(pa.array([], ids[0].type if ids else pa.int64())).type
        if not pa.types.is_fixed_size_list(schema.field(at).type):
            kind = pa.list_(pa.float32())
        field = schema.field(at).with_type(kind).with_nullable(True)
        schema = schema.set(at, field)
        if mark is not None:
            schema = schema.with_metadata((schema.metadata or {}) | mark)
        with (
            replacing(fresh, overwrite=True) as temporary,
            pq.ParquetWriter(temporary, schema, **_options(source, vector)) as writer,
        ):
            for group in groups:
                table = source.read_row_group(group)
                vectors = shared(ids[group]).cast(kind)
                table = table.set_column(at, field, vectors).cast(schema)
                writer.write_table(table, row_group_size=max(1, len(table)))


def _options(source: Any, vector: str) -> dict[str, Any]:
    """How the file was written, as far as it tells: each column's compression."""
    if not source.metadata.num_row_groups:
        return {}
    group = source.metadata.row_group(0)
    codecs: dict[str, str] = {}
    plain: list[str] = []
    for index in range(group.num_columns):
        column = group.column(index)
        name = column.compression.lower()
        top = column.path_in_schema.split(".")[0]
        codecs[top] = "none" if name == "uncompressed" else name
        if top != vector and column.has_dictionary_page:
            plain.append(column.path_in_schema)
    return {"compression": codecs, "use_dictionary": plain}


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
