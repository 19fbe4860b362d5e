"""The application's own Parquet files of a folder: which rows there are, and reading them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossfade.errors import BadInput
from crossfade.remote import RemotePath
from crossfade.stores.contract import Id
from crossfade.stores.parquet.rows import (
    Changed,
    Rows,
    Signature,
    hold,
    id_array,
    opened,
    scan,
    signature,
    take,
)
from crossfade.stores.rows import one_batch

STEP = "copy or write it again, or move it out of the folder"
_HANDLES = 256
_SETTLED = 3.0


@dataclass(frozen=True)
class BaseFile:
    """One file as it was when it was listed."""

    path: Path
    signature: Signature
    schema: pa.Schema
    ids: pa.Array

    @cached_property
    def token(self) -> int:
        """63 bits that are others once the file was replaced or written."""
        text = f"{self.path.name}\0{self.signature}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Snapshot:
    """All rows of the folder at one moment; a position counts rows in order of id."""

    id: str
    files: tuple[BaseFile, ...]
    ids: pa.Array
    order: Rows
    """For each position, the row's number when the files are laid end to end."""
    handles: tuple[Any, ...] = ()

    @cached_property
    def edges(self) -> Rows:
        return np.concatenate([[0], np.cumsum([len(f.ids) for f in self.files])]).astype(np.int64)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of all files."""
        return pa.unify_schemas([f.schema for f in self.files], promote_options="permissive")

    @cached_property
    def position(self) -> Rows:
        """The inverse of `order`."""
        out = np.empty(len(self.order), np.int64)
        out[self.order] = np.arange(len(self.order))
        return out

    @contextmanager
    def held(self) -> Iterator[Snapshot]:
        """The same with its files held open: their rows stay, whatever happens to their names."""
        if isinstance(self.files[0].path, RemotePath):
            # An object cannot be held: that it was the same to the end is looked at after reading.
            yield self
            return
        with ExitStack() as stack:
            # Folders of thousands of files would be too many handles: the rest is opened by need.
            handles = [
                stack.enter_context(hold(file.path, file.signature))
                for file in self.files[:_HANDLES]
            ]
            yield replace(self, handles=tuple(handles))

    def file_of(self, positions: Rows) -> Rows:
        """The number of the file of each position."""
        return np.searchsorted(self.edges, self.order[positions], "right") - 1

    def tokens(self, positions: Rows) -> Rows:
        """The token of each position's file."""
        each = np.array([file.token for file in self.files], np.int64)
        return each[self.file_of(positions)]

    def read(self, positions: Rows, columns: Sequence[str]) -> pa.Table:
        """Rows at the given positions, as (*columns); a column a file has not is null there."""
        files = self.file_of(positions)
        parts = [self.schema.empty_table()]
        places: list[Rows] = []
        for number in np.unique(files):
            file = self.files[number]
            mine = np.flatnonzero(files == number)
            rows = self.order[positions[mine]] - self.edges[number]
            with self._opened(number) as handle:
                parts.append(take(handle, rows, self._of(file, columns)))
            places.append(mine)
        places.append(np.empty(0, np.int64))
        back = np.argsort(np.concatenate(places), kind="stable")
        table = pa.concat_tables(parts, promote_options="permissive")
        return table.select(list(columns)).take(pa.array(back))

    def scan(self, columns: Sequence[str]) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """All rows, file by file, as (positions, batch)."""
        nothing = self.schema.empty_table()
        for number, file in enumerate(self.files):
            with self._opened(number) as handle:
                for start, batch in scan(handle, self._of(file, columns)):
                    first = self.edges[number] + start
                    parts = [nothing, pa.Table.from_batches([batch])]
                    table = pa.concat_tables(parts, promote_options="permissive")
                    yield (
                        self.position[first : first + len(batch)],
                        one_batch(table.select(list(columns))),
                    )

    def _opened(self, number: int) -> AbstractContextManager[Any]:
        file = self.files[number]
        held = self.handles[number] if number < len(self.handles) else None
        return opened(file.path, file.signature, step=STEP, held=held)

    def _of(self, file: BaseFile, columns: Sequence[str]) -> list[str]:
        """What to read of a file: the columns it has, and the id, so that there is always one."""
        wanted = [name for name in columns if name in file.schema.names and name != self.id]
        return [self.id, *wanted]


class Base:
    """The listing of a folder, kept as long as its files stay the same."""

    def __init__(self, folder: Path, id: str) -> None:
        self.folder = folder
        self.id = id
        self._known: dict[Path, BaseFile] = {}
        self._last: Snapshot | None = None
        self._marks: dict[str, tuple[tuple[int, int], Signature]] = {}

    def now(self) -> Snapshot:
        """The rows there are at this moment; only files that changed are read again."""
        while True:
            try:
                return self._listed()
            except Changed:
                continue

    def of(self, path: Path) -> Snapshot:
        """The rows of one file alone; `Changed` if it is gone."""
        try:
            mark = signature(path)
        except FileNotFoundError:
            raise Changed from None
        known = self._known.get(path)
        same = known is not None and known.signature == mark
        return self._sorted((known if known is not None and same else self._load(path, mark),))

    def _listed(self) -> Snapshot:
        found: dict[Path, BaseFile] = {}
        for path, mark in self._signatures():
            known = self._known.get(path)
            same = known is not None and known.signature == mark
            found[path] = known if known is not None and same else self._load(path, mark)
        files = tuple(found.values())
        if self._last is None or self._last.files != files:
            self._known = found
            self._last = self._sorted(files)
        return self._last

    def _signatures(self) -> Iterator[tuple[Path, Signature]]:
        """The application's files, and what tells each from what it was."""
        if isinstance(self.folder, RemotePath):
            yield from self._listed_marks(self.folder)
            return
        for path in base_paths(self.folder):
            try:
                yield path, signature(path)
            except FileNotFoundError:
                continue

    def _listed_marks(self, folder: RemotePath) -> Iterator[tuple[Path, Signature]]:
        """With one request for all: a file's own mark is asked for when it is new, or so young that
        it could be written again within the second that a listing tells."""
        infos = {info.path: info for info in folder.listed()}
        for path in base_paths(folder, [RemotePath(folder.scheme, name) for name in infos]):
            info = infos[path.key]
            listed = (info.mtime_ns or 0, info.size or 0)
            known = self._marks.get(path.key)
            if known is None or known[0] != listed:
                try:
                    mark = signature(path)
                except FileNotFoundError:
                    continue
                if time.time() - listed[0] / 1e9 > _SETTLED:
                    self._marks[path.key] = listed, mark
            else:
                mark = known[1]
            yield path, mark

    def _load(self, path: Path, mark: Signature) -> BaseFile:
        with opened(path, mark, step=STEP) as handle:
            schema = handle.schema_arrow
            if self.id not in schema.names:
                raise BadInput(
                    f"has no column {self.id!r}",
                    where=path,
                    step=f"its columns are {', '.join(schema.names)}",
                )
            kind = schema.field(self.id).type
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            if not (pa.types.is_integer(kind) or text):
                raise BadInput(f"ids are {kind}", where=path, step="use integer or text ids")
            ids = id_array(handle.read([self.id])[self.id])
        if ids.null_count:
            raise BadInput(f"has rows without {self.id!r}", where=path, step="give them ids")
        return BaseFile(path, mark, schema, ids)

    def _sorted(self, files: tuple[BaseFile, ...]) -> Snapshot:
        if not files:
            raise BadInput("holds no Parquet files", where=self.folder, step="name another folder")
        kinds = {file.ids.type: file for file in files}
        if len(kinds) > 1:
            one, other = list(kinds.values())[:2]
            raise BadInput(
                f"ids are {one.ids.type} there and {other.ids.type} in {other.path.name}",
                where=one.path,
                step="give all files ids of one type",
            )
        ids = pa.concat_arrays([file.ids for file in files])
        order = np.asarray(pc.sort_indices(ids).to_numpy(), np.int64)
        ids = ids.take(pa.array(order))
        snapshot = Snapshot(self.id, files, ids, order)
        if len(ids) > 1:
            twice = pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(False)
            if twice.any():
                at = int(np.flatnonzero(twice)[0])
                a, b = (files[n].path for n in snapshot.file_of(np.array([at, at + 1])))
                twice = f"{b.name} has it too" if a != b else "the file has it twice"
                key: Id = ids[at].as_py()
                raise BadInput(
                    f"id {key!r}: {twice}", where=a, step="keep one row of each id in the folder"
                )
        return snapshot


def base_paths(folder: Path, found: Iterable[Any] | None = None) -> list[Any]:
    """The files of the application; a name with a dot or an underscore first is none of them."""
    return sorted(
        path
        for path in (folder.iterdir() if found is None else found)
        if path.suffix.lower() == ".parquet" and path.name[0] not in "._"
    )
