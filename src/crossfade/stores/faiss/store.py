"""A FAISS index in a file, which the application replaces as a whole (by renaming a finished one
onto the old name).

Which rows there are is told by the index alone. It is not touched before `promote`, which puts
another of the same kind in its place. Added columns live in a folder beside it, as those of Parquet
files do. The token of a row is a hash of its vector and its payload; it is compared, and the files
looked at once more, just before a batch gets its name.

Under cosine vectors are kept at length one, as an index by inner product needs them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import to_arrow
from crossfade.files.faiss import library
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
    Column,
    Description,
    Hit,
    Id,
    Obstacle,
    OwnVectors,
    Scratch,
    Where,
    Work,
)
from crossfade.stores.faiss.base import VECTOR, Base, Snapshot
from crossfade.stores.faiss.index import write_like
from crossfade.stores.faiss.promote import Switch
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import check_name
from crossfade.stores.parquet.delta import Sidecar
from crossfade.stores.parquet.rows import Changed, Rows, places
from crossfade.stores.parquet.search import added, allowed, live_in, nearest
from crossfade.stores.rows import matrix, one_batch
from crossfade.stores.scratch import folder_beside, folder_bytes
from crossfade.stores.values import FileValues, beside

_TRIES = 50
_TOGETHER = 8192
T = TypeVar("T")


def file_of(at: str) -> Path:
    """The file that an address names.

    >>> file_of("faiss:shop/items.index").as_posix()
    'shop/items.index'
    """
    return Path(at.removeprefix("faiss:"))


def kept_values(at: str) -> FileValues:
    """The key-value place of an index, beside it."""
    return FileValues(beside(file_of(at), "json"))


class FaissStore:
    """An index of FAISS."""

    kind = "faiss"

    def __init__(
        self,
        at: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self.path = file_of(at)
        self.name = f"faiss:{self.path}"
        library("a FAISS store")
        if not self.path.is_file():
            raise BadInput("there is no such file", where=self.path, step="name an index of FAISS")
        if vector not in (None, VECTOR):
            raise BadInput(
                f"has no column {vector!r}",
                where=self.name,
                step=f"its vectors are called {VECTOR!r}",
            )
        self.id, self.vector = check_name(id or "id", "column"), VECTOR
        self._base = Base(self.path, self.id)
        self._folder = beside(self.path, "columns")
        self._side = Sidecar(self._folder)
        self._values = kept_values(at)
        snapshot = self._base.now()
        own: Distance = "l2" if snapshot.metric == "l2" else "cosine" if snapshot.unit else "dot"
        self.distance: Distance = distance or own

    def describe(self) -> Description:
        snapshot = self._base.now()
        return Description(
            kind=self.kind,
            name=self.name,
            rows=len(snapshot.ids),
            id=self.id,
            id_type="integer" if pa.types.is_integer(snapshot.ids.type) else "text",
            vector=self.vector,
            dim=snapshot.held.shape[1],
            distance=self.distance,
            columns=tuple(snapshot.schema.names),
            added=tuple(self._side.columns()),
            indexed=(),
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        while True:
            last = after

            def following(snapshot: Snapshot, last: Id | None = last) -> pa.RecordBatch:
                first = 0 if last is None else _behind(snapshot.ids, last)
                if missing is None:
                    at = np.arange(first, min(first + size, len(snapshot.ids)))
                else:
                    kept = allowed(snapshot, self._side, None, missing)
                    at = first + np.flatnonzero(kept[first:])[:size]
                return self._rows(snapshot, at, columns)

            batch = self._steady(following)
            if not len(batch):
                return
            yield batch
            after = batch[self.id][-1].as_py()

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        def found(snapshot: Snapshot) -> pa.RecordBatch:
            at = places(pa.array(ids, snapshot.ids.type), snapshot.ids)
            return self._rows(snapshot, at[at >= 0], columns)

        return self._steady(found)

    def add_columns(self, columns: Sequence[Column]) -> None:
        for column in columns:
            check_name(column.name)
        self._side.add(columns)

    def drop_columns(self, names: Sequence[str]) -> None:
        self._side.drop(names)

    def write(self, rows: pa.RecordBatch) -> int:
        def written(snapshot: Snapshot) -> int:
            ids = rows[self.id].cast(snapshot.ids.type)
            at = places(ids, snapshot.ids)
            good = at >= 0
            if TOKEN in rows.schema.names:
                good[good] = snapshot.tokens(at[good]) == rows[TOKEN].to_numpy()[good]
            if good.any():
                kept = rows.filter(pa.array(good))
                values = {
                    name: self._kept(kept[name], column)
                    for name, (column, _) in self._side.columns().items()
                }
                chosen = ids.filter(pa.array(good))
                self._side.append(chosen, values, lambda: self._base.marks() == snapshot.marks)
            return int(good.sum())

        return self._steady(written) if len(rows) else 0

    def erase(self, rows: pa.RecordBatch) -> int:
        nothing = {
            name: pa.nulls(len(rows), column.arrow)
            for name, (column, _) in self._side.columns().items()
        }
        return self.write(
            pa.RecordBatch.from_pydict({self.id: rows[self.id], **nothing, TOKEN: rows[TOKEN]})
        )

    def tally(self, column: str) -> dict[str | None, int]:
        def counted(snapshot: Snapshot) -> Counter[str | None]:
            counts: Counter[str | None] = Counter()
            live, there = live_in(snapshot, self._side)
            for rows, values in live.scan(*added(self._side, column)):
                kept = values.filter(pa.array(there[rows] >= 0)).drop_null()
                counts.update({v["values"]: v["counts"] for v in kept.value_counts().to_pylist()})
            if rest := len(snapshot.ids) - counts.total():
                counts[None] = rest
            return counts

        return dict(self._steady(counted))

    def search(
        self,
        query: NDArray[np.float32],
        *,
        column: str,
        k: int,
        where: Where | None = None,
        missing: str | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        query = np.asarray(query, np.float32)

        def found(snapshot: Snapshot) -> list[Hit]:
            keep = allowed(snapshot, self._side, where, missing)
            parts = self._all_vectors(snapshot, column, len(query))
            at, best = nearest(parts, query, self.distance, keep, k)
            rows = self._rows(snapshot, at, columns).to_pylist()
            return [
                Hit(row[self.id], float(score), {name: row[name] for name in columns})
                for row, score in zip(rows, best, strict=True)
            ]

        return self._steady(found)

    def build_index(self, column: str) -> None:
        """Nothing to build: a search goes through all vectors, in memory."""

    def version(self) -> str | None:
        return repr((self._base.marks(), self._side.state()))

    def activity(self) -> str | None:
        return self.version()

    def duplicates(self) -> list[Id]:
        """An index with an id twice is refused whatever is asked of it, with the id named."""
        self._base.now()
        return []

    def obstacles(self) -> list[Obstacle]:
        folder = self.path.resolve().parent
        return [] if os.access(folder, os.W_OK) else [Obstacle(f"{folder} cannot be written")]

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        known, switch = self._side.columns(), Switch(self.path, self._folder)
        if column in known and not switch.dropping:
            switch.begin(0 if switch.begun else self.describe().dim)
            for _ in range(_TRIES):
                try:
                    if self._switched(switch, column, columns, work):
                        break
                except Changed:
                    continue
            else:
                raise self._restless()
        switch.drop()
        self._side.drop([column, *drop])
        switch.end()
        return self.vector

    def withdraw(self, column: str) -> None:
        switch, known = Switch(self.path, self._folder), self._side.columns()
        if switch.dropping or (column not in known and not switch.begun):
            raise StoreError("the old vectors are gone", where=self.name)
        if switch.begun and not switch.done:
            dim = self._base.now().held.shape[1]
            if dim == known[column][0].dim != switch.old_dim:
                raise StoreError(
                    "holds new vectors, and was written since the switch",
                    where=self.name,
                    step="finish, or put the old index back first",
                )
        switch.undo()

    def own_vectors(self, column: str) -> OwnVectors:
        """By the file itself, until it is noted that the old index goes."""
        known, switch = self._side.columns(), Switch(self.path, self._folder)
        if column not in known or switch.dropping:
            return "new"
        if not switch.begun:
            return "old"
        return "new" if self._is_new(switch, self._base.now(), known[column][0].dim) else "old"

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    @contextmanager
    def scratch(self, rows: int) -> Iterator[Scratch | None]:
        with folder_beside(self.path) as folder:
            copy = folder / "items.index"
            try:
                self._copy(copy, rows)
            except BadInput:
                # Of so few rows there is no index of this kind.
                yield None
                return
            store = FaissStore(f"faiss:{copy}", id=self.id, distance=self.distance)
            yield Scratch(store, lambda: folder_bytes(folder))

    def _copy(self, path: Path, rows: int) -> None:
        """The first rows of the index, with their ids and columns, as files of their own."""
        snapshot = self._base.now()
        write_like(self.path, path, snapshot.held[:rows])
        at = snapshot.position[:rows]
        ids = snapshot.ids.take(pa.array(at))
        if self.path.with_suffix(".ids.npy").exists():
            np.save(path.with_suffix(".ids.npy"), ids.to_numpy(zero_copy_only=False))
        elif self.path.with_suffix(".ids.txt").exists():
            lines = "".join(f"{key}\n" for key in ids.to_pylist())
            path.with_suffix(".ids.txt").write_text(lines, encoding="utf-8")
        if snapshot.payload is not None:
            there = snapshot.rows_of_payload[at]
            part = snapshot.payload.take(pa.array(there[there >= 0]))
            pq.write_table(part, path.with_suffix(".parquet"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        with folder_lock(beside(self.path, "lock"), self.name):
            self._side.clean()
            self._values.clean()
            yield

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        told = ", ".join(f"{c.name}: {c.arrow}" for c in columns)
        write = [f"write {self._folder}/NNNNNNNN-NNNNNNNN.parquet  -- {self.id}, {told}"]
        return {
            "start": [f"make {self._folder}/columns.json  -- {told}"],
            "forward": write,
            "backfill": write,
            "finish": [
                f"write {self._folder}/beside.index  -- {columns[0].name}, {columns[0].dim}",
                f"exchange it with {self.path}",
                f"delete {self._folder}/beside.index",
            ],
            "rollback": [f"delete {self._folder}/*.parquet"],
        }

    def close(self) -> None:
        """Nothing is held open."""

    def _switched(self, switch: Switch, column: str, columns: Sequence[str], work: Work) -> bool:
        """Bring all rows up to date and put an index of the shared vectors in place."""
        snapshot = self._base.now()
        shared = self._side.columns()[column][0].dim
        if self._is_new(switch, snapshot, shared):
            return True
        for first in range(0, len(snapshot.ids), ROWS):
            at = np.arange(first, min(first + ROWS, len(snapshot.ids)))
            made = work(self._rows(snapshot, at, columns))
            if made is not None and self.write(made) < len(made):
                raise Changed
        live, there = live_in(snapshot, self._side)
        vectors = np.zeros((len(snapshot.ids), shared), np.float32)
        for rows, values in live.scan(*self._side.columns()[column]):
            has = values.is_valid().to_numpy(zero_copy_only=False) & (there[rows] >= 0)
            # By its place in the index.
            vectors[snapshot.order[there[rows][has]]] = matrix(values.filter(pa.array(has)))
        write_like(self.path, switch.beside, vectors)
        before = snapshot.marks[0]
        self._base.check(snapshot)
        return before is not None and switch.put(before)

    def _is_new(self, switch: Switch, snapshot: Snapshot, shared: int) -> bool:
        """Whether the index is ours, or one that the application has built of new vectors since."""
        return switch.done or snapshot.held.shape[1] == shared != switch.old_dim

    def _kept(self, values: pa.Array, column: Column) -> pa.Array:
        """A column as it is written: vectors at length one, where they are compared by cosine."""
        values = values.cast(column.arrow)
        if column.kind != "vector" or self.distance != "cosine":
            return values
        vectors = matrix(values)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        scaled = vectors / np.where(lengths > 0, lengths, 1.0)
        if not values.null_count:
            return to_arrow(scaled.astype(np.float32))
        numbers = pa.array(scaled.astype(np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(numbers, column.dim, mask=values.is_null())

    def _all_vectors(
        self, snapshot: Snapshot, column: str, asked: int
    ) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """All vectors of a column as (positions, vectors), without the rows that have none."""
        own = column == self.vector
        dim = snapshot.held.shape[1] if own else added(self._side, column)[0].dim
        if dim != asked:
            raise BadInput(
                f"{column!r} has vectors of {dim} dimensions, and the query {asked}",
                where=self.name,
            )
        if own:
            yield from snapshot.parts(_TOGETHER)
            return
        live, there = live_in(snapshot, self._side)
        for rows, values in live.scan(*added(self._side, column)):
            has = values.is_valid().to_numpy(zero_copy_only=False) & (there[rows] >= 0)
            yield there[rows][has], matrix(values.filter(pa.array(has)))
        # It was dropped under our hands: what was found is of a half of it, or of nothing.
        added(self._side, column)

    def _rows(self, snapshot: Snapshot, positions: Rows, columns: Sequence[str]) -> pa.RecordBatch:
        """Rows as the contract wants them: (id, *columns, TOKEN)."""
        known = self._side.columns()
        out: dict[str, Any] = {self.id: snapshot.ids.take(pa.array(positions))}
        live = self._side.live() if any(name in known for name in columns) else None
        for name in columns:
            if name in known and live is not None:
                at = places(out[self.id], live.ids.cast(snapshot.ids.type))
                out[name] = live.read(at, *known[name])
            elif name != self.id:
                if name not in snapshot.schema.names:
                    raise BadInput(f"has no column {name!r}", where=self.name)
                out[name] = snapshot.read(positions, [name])[name]
        # Rows that are read for their ids alone need none that fits.
        tokens = snapshot.tokens(positions) if columns else np.full(len(positions), -1)
        return one_batch(pa.table(out | {TOKEN: pa.array(tokens, pa.int64())}))

    def _steady(self, act: Callable[[Snapshot], T]) -> T:
        """What `act` gives for the rows of one moment; again if files changed under it."""
        for _ in range(_TRIES):
            try:
                return act(self._base.now())
            except Changed:
                continue
        raise self._restless()

    def _restless(self) -> StoreError:
        return StoreError("its files keep changing", where=self.name, step="try again later")


def _behind(ids: pa.Array, after: Id) -> int:
    """The first position behind an id, which need not be there."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if ids[middle].as_py() <= after:
            low = middle + 1
        else:
            high = middle
    return low
