"""The application's own files: an index, its ids where they lie beside it, and what else there is
of its rows.

    items.index                        the vectors, with ids in it (`IndexIDMap`, IVF) or without
    items.ids.npy | items.ids.txt      ids of its rows in their order, where it has none of its own
    items.parquet | items.jsonl        columns by `id`: the payload

Without ids anywhere rows are known by their places, 0, 1, 2, …
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files import read_values
from crossfade.files.guards import reading
from crossfade.sketch import row_hashes
from crossfade.stores.faiss.index import read_vectors
from crossfade.stores.parquet.rows import Changed, Rows, Signature, id_array, places, signature
from crossfade.stores.rows import one_batch

VECTOR = "vector"
Marks = tuple[Signature | None, ...]
_TOGETHER = 8192
_UNIT = 1e-3
# Seconds that whoever replaces an index and its ids, one after the other, may take for it.
_BETWEEN, _LOOKS = 0.05, 10


class _Torn(BadInput):
    """An index and ids beside it that do not go together."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All rows at one moment; a position counts them in order of id."""

    marks: Marks
    id: str
    ids: pa.Array
    order: Rows
    """For each position, the row's place in the index."""
    held: NDArray[np.float32]
    """Vectors in the order of the index."""
    metric: str
    payload: pa.Table | None

    @property
    def schema(self) -> pa.Schema:
        own = [] if self.payload is None else [f for f in self.payload.schema if f.name != self.id]
        first = [pa.field(self.id, self.ids.type), self.vector_field]
        return pa.schema([*first, *own])

    @property
    def vector_field(self) -> pa.Field:
        return pa.field(VECTOR, pa.list_(pa.float32(), self.held.shape[1]))

    @cached_property
    def rows_of_payload(self) -> Rows:
        """For each position its row in the payload, −1 if it has none."""
        if self.payload is None:
            return np.full(len(self.ids), -1, np.int64)
        try:
            ids = id_array(self.payload[self.id]).cast(self.ids.type)
        except pa.ArrowException:
            raise BadInput(
                f"the ids of its columns are {self.payload[self.id].type}, and its own "
                f"{self.ids.type}",
                step="give both the same ids",
            ) from None
        return places(self.ids, ids)

    @cached_property
    def unit(self) -> bool:
        """Whether vectors have length one, as those have that are compared by cosine."""
        some = self.held[:: max(1, len(self.held) // 1000)]
        lengths = np.linalg.norm(some, axis=1)
        return bool((np.abs(lengths[lengths > 0] - 1) < _UNIT).all() and (lengths > 0).any())

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Which rows of the index have a vector: one of zeros is the only way to have none."""
        return np.asarray(self.held.any(axis=1))

    def vectors(self, positions: Rows) -> NDArray[np.float32]:
        return self.held[self.order[positions]]

    @cached_property
    def position(self) -> Rows:
        """The inverse of `order`."""
        out = np.empty(len(self.order), np.int64)
        out[self.order] = np.arange(len(self.order))
        return out

    def parts(self, size: int) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """All rows that have a vector as (positions, vectors), as they lie in the index."""
        for first in range(0, len(self.held), size):
            at, vectors = self.position[first : first + size], self.held[first : first + size]
            there = self.there[first : first + size]
            yield (at, vectors) if there.all() else (at[there], vectors[there])

    def read(self, positions: Rows, columns: Sequence[str]) -> pa.Table:
        """Rows at the given positions, as (*columns); what the payload lacks is null."""
        out: dict[str, Any] = {}
        rows = self.rows_of_payload[positions]
        for name in columns:
            if name == self.id:
                out[name] = self.ids.take(pa.array(positions))
            elif name == VECTOR:
                gone = pa.array(~self.there[self.order[positions]])
                numbers = pa.array(self.vectors(positions).reshape(-1))
                dim = self.held.shape[1]
                out[name] = pa.FixedSizeListArray.from_arrays(numbers, dim, mask=gone)
            else:
                out[name] = self._of_payload(rows, name)
        return pa.table(out)

    def scan(self, columns: Sequence[str]) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        for first in range(0, len(self.ids), _TOGETHER):
            positions = np.arange(first, min(first + _TOGETHER, len(self.ids)))
            yield positions, one_batch(self.read(positions, columns))

    def tokens(self, positions: Rows) -> NDArray[np.int64]:
        """63 bits of what each of these rows holds."""
        hashes = row_hashes(self.vectors(positions))
        if self.payload is not None:
            names = [name for name in self.payload.column_names if name != self.id]
            rows = self.read(positions, names).to_pylist() if names else []
            told = (hashlib.blake2b(repr(row).encode(), digest_size=8).digest() for row in rows)
            hashes = hashes ^ np.frombuffer(b"".join(told), np.uint64) if names else hashes
        return (hashes >> np.uint64(1)).astype(np.int64)

    def _of_payload(self, rows: Rows, name: str) -> Any:
        if self.payload is None or name not in self.payload.column_names:
            raise BadInput(f"has no column {name!r}")
        return self.payload[name].take(pa.array(rows, mask=rows < 0)).combine_chunks()


class Base:
    """The files, read again when one of them has been replaced."""

    def __init__(self, path: Path, id: str) -> None:
        self.path, self.id = path, id
        self._last: Snapshot | None = None

    def now(self) -> Snapshot:
        """The rows there are at this moment."""
        torn = 0
        while True:
            marks = self.marks()
            if self._last is not None and self._last.marks == marks:
                return self._last
            try:
                loaded = self._load(marks)
            except _Torn:
                torn += 1
                if torn == _LOOKS:
                    raise
                time.sleep(_BETWEEN)
                continue
            except BadInput:
                # Replaced while it was read, perhaps in place: then it is another one by now.
                if self.marks() != marks:
                    continue
                raise
            if self.marks() == marks:
                self._last = loaded
                return loaded

    def marks(self) -> Marks:
        """What changes when a file is replaced or written."""
        files = (self.path, *self._beside(".ids.npy", ".ids.txt", ".parquet", ".jsonl"))
        return tuple(_mark(path) for path in files)

    def check(self, snapshot: Snapshot) -> None:
        """`Changed` if files have been replaced since."""
        if self.marks() != snapshot.marks:
            raise Changed

    def _load(self, marks: Marks) -> Snapshot:
        held = read_vectors(self.path)
        beside = self._ids(len(held.vectors))
        if beside is not None and held.ids is not None:
            raise BadInput(
                "has ids of its own, and others beside it",
                where=self.path,
                step="take the file of ids away, or build the index without an IndexIDMap",
            )
        if beside is None:
            own = np.arange(len(held.vectors)) if held.ids is None else held.ids
            beside = pa.array(own, pa.int64())
        order = np.asarray(pc.sort_indices(beside).to_numpy(), np.int64)
        ids = beside.take(pa.array(order))
        if len(ids) > 1:
            twice = pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(False)
            if twice.any():
                key = ids[int(np.flatnonzero(twice)[0])].as_py()
                raise BadInput(
                    f"has the id {key!r} twice", where=self.path, step="keep one row of each id"
                )
        return Snapshot(marks, self.id, ids, order, held.vectors, held.metric, self._payload())

    def _ids(self, rows: int) -> pa.Array | None:
        array, text = self._beside(".ids.npy", ".ids.txt")
        path = array if array.exists() else text
        if not path.exists():
            return None
        with reading(path):
            if path == array:
                found = id_array(read_values(path))
            else:
                # One on each line, and nothing but a line's end ends one.
                lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
                found = pa.array(lines if rows else [], pa.string())
        if len(found) != rows or found.null_count:
            raise _Torn(
                f"has {len(found) - found.null_count} ids, and {self.path.name} {rows} rows",
                where=path,
                step="write one id for each row, in their order",
            )
        return found

    def _payload(self) -> pa.Table | None:
        table, lines = self._beside(".parquet", ".jsonl")
        path = table if table.exists() else lines
        if not path.exists():
            return None
        try:
            with reading(path):
                found = pq.read_table(path) if path == table else pyarrow.json.read_json(path)
        except pa.ArrowException as error:
            reason = (str(error).splitlines() or [""])[0]
            raise BadInput(f"cannot be read ({reason})", where=path, step="write it anew") from None
        if self.id not in found.column_names:
            raise BadInput(
                f"has no column {self.id!r}",
                where=path,
                step=f"name its ids with --id: it has {', '.join(found.column_names)}",
            )
        if VECTOR in found.column_names:
            found = found.drop_columns([VECTOR])
        return found

    def _beside(self, *endings: str) -> tuple[Path, ...]:
        return tuple(self.path.with_name(f"{self.path.stem}{ending}") for ending in endings)


def _mark(path: Path) -> Signature | None:
    try:
        return signature(path)
    except FileNotFoundError:
        return None
