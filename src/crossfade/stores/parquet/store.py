"""A plain folder of Parquet files, which the application adds, replaces (by renaming) and deletes.

Which rows there are is told by the application's files alone, and they are not touched before
`promote`, which keeps them until all others are in place (`parquet_promote`). Added columns live
beside them, in `_crossfade`. Searches go through all vectors, a few
thousand at a time; streaming is fastest where ids rise along the files.

The token of a row is that of its file: it changes when the file is replaced. It is compared just
before a batch gets its name; a file that is replaced in the instant between is not noticed.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import is_vector_type
from crossfade.remote import is_remote, to_path
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
from crossfade.stores.ledger import Ledger
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import check_name
from crossfade.stores.parquet.base import STEP, Base, Snapshot, base_paths
from crossfade.stores.parquet.delta import Sidecar
from crossfade.stores.parquet.promote import Promotion
from crossfade.stores.parquet.rows import (
    Changed,
    Rows,
    Signature,
    opened,
    places,
    signature,
    vectors,
)
from crossfade.stores.parquet.search import added, all_vectors, allowed, dimension, live_in, nearest
from crossfade.stores.rows import one_batch
from crossfade.stores.scratch import folder_beside, folder_bytes
from crossfade.stores.values import FileValues

SIDE = "_crossfade"
VALUES = f"{SIDE}/values.json"
_TRIES = 20
T = TypeVar("T")


def ledger_of(path: Path) -> Ledger | None:
    """What is kept of a folder in an object store."""
    return Ledger(path / SIDE / "ledger", str(path)) if is_remote(path) else None


def _sidecar(folder: Path, ledger: Ledger | None) -> Sidecar:
    if ledger is None:
        return Sidecar(folder)
    from crossfade.stores.parquet.remote import LedgerSidecar

    return LedgerSidecar(folder, ledger)


class ParquetStore:
    """A folder of Parquet files."""

    kind = "parquet"

    def __init__(
        self,
        path: str | Path,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self.path = to_path(path)
        self.name = str(self.path)
        self._ledger = ledger_of(self.path)
        self.distance: Distance = distance or "cosine"
        self.id = check_name(id or "id", "column")
        self._base = Base(self.path, self.id)
        self._side = _sidecar(self.path / SIDE, self._ledger)
        self._values = self._ledger or FileValues(self.path / VALUES)
        files = self._base.now().files
        self.vector = check_name(vector or _the_vector(files[0].schema, files[0].path), "column")
        for file in files:
            _check_vector(file.schema, self.vector, file.path)

    def describe(self) -> Description:
        snapshot = self._base.now()
        return Description(
            kind=self.kind,
            name=self.name,
            rows=len(snapshot.ids),
            id=self.id,
            id_type="integer" if pa.types.is_integer(snapshot.ids.type) else "text",
            vector=self.vector,
            dim=self._steady(lambda now: dimension(now, self.vector)),
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
            asked = partial(self._next, after=after, size=size, columns=columns, missing=missing)
            batch = self._steady(asked)
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
        known = self._side.columns()

        def written(snapshot: Snapshot) -> int:
            ids = rows[self.id].cast(snapshot.ids.type)
            at = places(ids, snapshot.ids)
            good = at >= 0
            if TOKEN in rows.schema.names:
                good[good] = snapshot.tokens(at[good]) == rows[TOKEN].to_numpy()[good]
            if good.any():
                kept = rows.filter(pa.array(good))
                values = {n: kept[n].cast(column.arrow) for n, (column, _) in known.items()}
                kept_ids = ids.filter(pa.array(good))
                self._side.append(
                    kept_ids, values, lambda: self._base.now().files == snapshot.files
                )
            return int(good.sum())

        return self._steady(written)

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
            there = column in self._side.columns()
            parts = all_vectors(snapshot, self._side, column, len(query))
            at, best = nearest(parts, query, self.distance, keep, k)
            if there and column not in self._side.columns():
                # It was dropped under our hands: what was found is of a half of it, or of nothing.
                raise Changed
            rows = self._rows(snapshot, at, columns).to_pylist()
            return [
                Hit(row[self.id], float(score), {name: row[name] for name in columns})
                for row, score in zip(rows, best, strict=True)
            ]

        return self._steady(found)

    def build_index(self, column: str) -> None:
        """Nothing to build: a search goes through all vectors."""

    def version(self) -> str | None:
        files = [(file.path.name, file.signature) for file in self._base.now().files]
        told = repr((files, self._side.state())).encode()
        return hashlib.blake2b(told, digest_size=16).hexdigest()

    def activity(self) -> str | None:
        return self.version()

    def duplicates(self) -> list[Id]:
        """A folder with an id twice is refused whatever is asked of it, with the id named."""
        self._base.now()
        return []

    def obstacles(self) -> list[Obstacle]:
        if self._ledger is not None:
            return []
        folders = {path.resolve().parent for path in base_paths(self.path)} | {self.path}
        return [
            Obstacle(f"{folder} cannot be written")
            for folder in sorted(folders)
            if not os.access(folder, os.W_OK)
        ]

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        known, promotion = self._side.columns(), self._promotion()
        if column in known and not promotion.dropping:
            promotion.begin(0 if promotion.begun else self.describe().dim)
            promotion.switch(
                self.id,
                self.vector,
                lambda path: self._ready(
                    path, columns, work, known[column][0].dim, promotion.old_dim
                ),
                lambda ids: self._shared(ids, column),
            )
        promotion.drop()
        self._side.drop([column, *drop])
        promotion.end()
        return self.vector

    def withdraw(self, column: str) -> None:
        promotion = self._promotion()
        known = self._side.columns()
        if promotion.dropping or (column not in known and not promotion.begun):
            raise StoreError("the old vectors are gone", where=self.name)
        if not promotion.begun:
            # Killed before it was noted, it may have made its folders.
            promotion.undo()
            return
        dim = known[column][0].dim
        for path in promotion.foreign():
            if self._dim_of(path) == dim:
                raise StoreError(
                    "holds new vectors, and was written since the switch",
                    where=path,
                    step="finish, or take this file out of the folder first",
                )
        promotion.undo()

    def own_vectors(self, column: str) -> OwnVectors:
        """File by file, for each changes places by itself."""
        known, promotion = self._side.columns(), self._promotion()
        if column not in known or promotion.dropping:
            return "new"
        if not promotion.begun:
            return "old"
        dim, old_dim = known[column][0].dim, promotion.old_dim

        def look(snapshot: Snapshot) -> set[bool]:
            """Whether files are new: ours, or put there by the application with new vectors."""
            return {
                promotion.done(file.path) or self._dim_of(file.path) == dim != old_dim
                for file in snapshot.files
                if len(file.ids)
            }

        found = self._steady(look)
        return "neither" if len(found) > 1 else "new" if True in found else "old"

    def _ready(
        self, path: Path, columns: Sequence[str], work: Work, dim: int, old_dim: int
    ) -> bool:
        """Show a file's rows to `work`, and write what it makes.

        A file that comes with new vectors is the application's own, and done. Where old and new
        are of one length it cannot be told, and counts as old until all files are in place.
        """
        file = self._base.of(path)
        if self._dim_of(path) == dim != old_dim:
            return False
        for first in range(0, len(file.ids), ROWS):
            some = np.arange(first, min(first + ROWS, len(file.ids)))
            with file.held() as held:
                made = work(self._rows(held, some, columns))
            if made is not None:
                ids = made[self.id].cast(file.ids.type)
                values = {
                    name: made[name].cast(column.arrow)
                    for name, (column, _) in self._side.columns().items()
                }
                self._side.append(ids, values, partial(_is_still, path, file.files[0].signature))
        return True

    def _shared(self, ids: pa.Array, column: str) -> pa.Array:
        live = self._side.live()
        return live.read(places(ids, live.ids.cast(ids.type)), *self._side.columns()[column])

    def _dim_of(self, path: Path) -> int | None:
        """How long the vectors of a file are; None if it has none."""
        file = self._base.of(path)
        try:
            return dimension(file, self.vector) if len(file.ids) else None
        except BadInput:
            return None

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    def _promotion(self) -> Promotion:
        if self._ledger is None:
            return Promotion(self.path, self.path / SIDE)
        from crossfade.stores.parquet.remote import RemotePromotion

        return RemotePromotion(self.path, self.path / SIDE, self._ledger)

    @contextmanager
    def scratch(self, rows: int) -> Iterator[Scratch | None]:
        if is_remote(self.path):
            yield None
            return
        with folder_beside(self.path) as folder:
            copy = folder / "items"
            copy.mkdir()
            self._steady(lambda now: _copy(now, copy, rows))
            store = ParquetStore(copy, id=self.id, vector=self.vector, distance=self.distance)
            yield Scratch(store, lambda: folder_bytes(folder))

    @contextmanager
    def lock(self) -> Iterator[None]:
        if self._ledger is not None:
            with self._ledger.lease():
                self._side.clean()
                yield
            return
        with folder_lock(self.path / SIDE / "lock", self.name):
            self._side.clean()
            yield

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        side = f"{self.path / SIDE}"
        added = ", ".join(f"{c.name}: {c.arrow}" for c in columns)
        write = [f"write {side}/NNNNNNNN-NNNNNNNN.parquet  -- {self.id}, {added}"]
        return {
            "start": [f"make {side}/columns.json  -- {added}"],
            "forward": write,
            "backfill": write,
            "finish": [
                f"rewrite {path}  -- {columns[0].name} for {self.vector}"
                for path in base_paths(self.path)
            ],
            "rollback": [f"delete {side}/*.parquet"],
        }

    def close(self) -> None:
        """Nothing is held open."""

    def _steady(self, act: Callable[[Snapshot], T]) -> T:
        """What `act` gives for the rows of one moment; again if files changed under it."""
        for _ in range(_TRIES):
            try:
                with self._base.now().held() as snapshot:
                    return act(snapshot)
            except Changed:
                continue
        raise StoreError("its files keep changing", where=self.name, step="try again later")

    def _next(
        self,
        snapshot: Snapshot,
        after: Id | None,
        size: int,
        columns: Sequence[str],
        missing: str | None,
    ) -> pa.RecordBatch:
        """The rows after an id, as they are now."""
        first, end = 0, len(snapshot.ids)
        if after is not None:
            first = bisect_right(range(end), after, key=lambda at: snapshot.ids[at].as_py())
        if missing is None:
            return self._rows(snapshot, np.arange(first, min(first + size, end)), columns)
        kept = allowed(snapshot, self._side, None, missing)
        return self._rows(snapshot, first + np.flatnonzero(kept[first:])[:size], columns)

    def _rows(self, snapshot: Snapshot, positions: Rows, columns: Sequence[str]) -> pa.RecordBatch:
        """Rows as the contract wants them: (id, *columns, TOKEN)."""
        known = self._side.columns()
        own = [name for name in columns if name not in known and name != self.id]
        for name in own:
            if name not in snapshot.schema.names:
                raise BadInput(f"has no column {name!r}", where=self.name)
        table = snapshot.read(positions, own)
        ids = snapshot.ids.take(pa.array(positions))
        live = self._side.live() if len(own) < len(columns) else None
        out: dict[str, Any] = {self.id: ids}
        for name in columns:
            if name in known and live is not None:
                at = places(ids, live.ids.cast(ids.type))
                out[name] = live.read(at, *known[name])
            elif name == self.vector:
                out[name] = vectors(table[name], dimension(snapshot, self.vector), self.name)
            elif name != self.id:
                out[name] = table[name]
        out[TOKEN] = pa.array(snapshot.tokens(positions))
        return one_batch(pa.table(out))


def _copy(snapshot: Snapshot, folder: Path, rows: int) -> None:
    """The first rows of its files, in as many files as they lie in."""
    for number, file in enumerate(snapshot.files):
        if rows <= 0:
            return
        with opened(file.path, file.signature, step=STEP) as handle:
            parts: list[pa.RecordBatch] = []
            for batch in handle.iter_batches(min(rows, ROWS)):
                parts.append(batch.slice(0, rows))
                rows -= len(parts[-1])
                if rows <= 0:
                    break
        if parts:
            pq.write_table(pa.Table.from_batches(parts), folder / f"{number}.parquet")


def _is_still(path: Path, mark: Signature) -> bool:
    try:
        return signature(path) == mark
    except FileNotFoundError:
        return False


def _the_vector(schema: pa.Schema, where: Path) -> str:
    found = [field.name for field in schema if is_vector_type(field.type)]
    if len(found) == 1:
        return str(found[0])
    raise BadInput(
        f"has {len(found)} vector columns" if found else "has no vector column",
        where=where,
        step=f"name one with --vector: its columns are {', '.join(schema.names)}",
    )


def _check_vector(schema: pa.Schema, name: str, where: Path) -> None:
    step = f"its columns are {', '.join(schema.names)}"
    if name not in schema.names:
        raise BadInput(f"has no column {name!r}", where=where, step=step)
    if not is_vector_type(schema.field(name).type):
        raise BadInput(f"{name!r} holds no vectors", where=where, step=step)
