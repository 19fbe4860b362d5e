"""In which order a store's rows are re-embedded: the plan's order, over the rows that are there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.backfill.classes import encoded
from crossfade.backfill.gallery import notes_on, order_gallery, reading_order
from crossfade.backfill.gallery_file import NEAREST
from crossfade.backfill.plan import ORDER, PLAN, Plan
from crossfade.errors import BadInput
from crossfade.files import replacing
from crossfade.files.spilled import SpilledColumn
from crossfade.journal.journal import Journal
from crossfade.migration.forward import Progress
from crossfade.remote import is_remote, to_path
from crossfade.stores import Id, Store
from crossfade.stores.rows import id_list
from crossfade.upgrade import Upgrade

# Of an order made elsewhere so many ids must be the store's: rows come and go meanwhile.
_AT_LEAST_KNOWN = 0.5
_READ = 100_000
# Ids that are sorted at a time.
_RUN = 2_000_000


@dataclass(frozen=True, eq=False)
class PlanFolder:
    """A plan where it lies, with the hash it was found by: read once in a run."""

    folder: Path
    hash: str
    plan: Plan


def hash_plan(folder: Path) -> str:
    """The hash of plan.json: another plan in the same folder is another plan."""
    try:
        return hashlib.sha256((folder / PLAN).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(
            f"is no plan ({error.strerror})", where=folder, step="name its folder"
        ) from None


def find_order(
    store: Store,
    upgrade: Upgrade,
    planned: PlanFolder,
    journal: Journal,
    *,
    labels: str | None = None,
    priority: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file of ids, most urgent first.

    `order.parquet` of the plan, where `crossfade plan --gallery` wrote one; else it is made from
    the store's own old vectors, once, and kept beside the plan so that a resumed backfill goes on
    in the same order. One by class that was made without `labels` is made again when they are
    given, unless rows were filled by it.
    """
    folder = planned.folder
    given = folder / ORDER
    if given.is_file():
        _check_known(store, given)
        return given
    # By the migration, not by the store's name: there are many `items.lance`.
    name = hashlib.sha256(f"{journal.migration}/{planned.hash}".encode()).hexdigest()[:16]
    made = folder / "orders" / f"{name}.parquet"
    better = labels is not None and made.is_file() and NEAREST in notes_on(made)
    if better:
        _check_unused(store, journal, made)
    # What a killed process of this migration has left; no other is at work on it.
    for left in made.parent.glob(f".{name}[-.]*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    if better or not made.is_file():
        made.parent.mkdir(exist_ok=True)
        _make(store, upgrade, planned.plan, made, labels, priority, progress)
    return made


@contextmanager
def _open_order(path: Path) -> Iterator[pq.ParquetFile]:
    """A file of ids, on a disk or in an object store."""
    with reading_order(path), path.open("rb") as raw, pq.ParquetFile(raw) as file:
        yield file


def hash_order(path: Path) -> str:
    """The hash of a file of ids: workers on several machines have to go by the same."""
    with reading_order(path), path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def read_ids(path: Path) -> Iterator[list[Id]]:
    """The ids of an order, in pieces."""
    with _open_order(path) as file:
        for batch in file.iter_batches(_READ, columns=["id"]):
            yield id_list(batch["id"])


def placed(path: Path) -> Iterator[tuple[Id, int]]:
    """Every id of an order, with its place."""
    place = 0
    for ids in read_ids(path):
        yield from ((key, place + i) for i, key in enumerate(ids))
        place += len(ids)


def find_places(path: Path, wanted: Collection[Id], otherwise: int) -> dict[Id, int]:
    """Where these ids stand in an order; `otherwise` for those it does not know."""
    out = dict.fromkeys(wanted, otherwise)
    if not out:
        return out
    place, looked_for = 0, pa.array(list(out))
    with _open_order(path) as file:
        for batch in file.iter_batches(_READ, columns=["id"]):
            same = pa.types.is_integer(looked_for.type) == pa.types.is_integer(batch["id"].type)
            if same:
                there = np.flatnonzero(pc.is_in(batch["id"], value_set=looked_for))
                found = id_list(batch["id"].take(pa.array(there)))
                out.update(zip(found, (place + there).tolist(), strict=True))
            place += len(batch)
    return out


class Stretches:
    """An order, a stretch of its places at a time, wherever in the file they are.

    What was read of the file last is kept: the next stretch is most likely near it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with _open_order(path) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._ends = np.cumsum(sizes)
        self._kept = lru_cache(maxsize=2)(self._group)

    def between(self, first: int, last: int) -> Iterator[tuple[Id, int]]:
        """The ids at these places, `last` not among them, each with its place."""
        for number, end in enumerate(self._ends.tolist()):
            begin = int(self._ends[number - 1]) if number else 0
            if begin < last and end > first:
                low, high = max(first, begin), min(last, end)
                some = self._kept(number).slice(low - begin, high - low)
                yield from zip(id_list(some), range(low, high), strict=True)

    def _group(self, number: int) -> pa.Array:
        with _open_order(self._path) as file:
            column = file.read_row_group(number, columns=["id"])["id"]
        return column.combine_chunks()


def late_rows(store: Store, order: Path, rows: int) -> Iterator[tuple[Id, int]]:
    """Rows of the store that an order of `rows` does not know: they came later, and count as its
    last.

    The order's ids lie sorted on the disk meanwhile, in runs that are gone through side by side
    with the store's own, which come sorted: a hundred million of them take no more memory than ten
    thousand.
    """
    with _scratch(order) as scratch:
        known = _SortedIds(order, scratch)
        for batch in store.stream([]):
            ids = batch[store.id]
            new = ids.filter(pa.array(~known.has(ids)))
            yield from ((key, rows) for key in id_list(new))


class _SortedIds:
    """The ids of an order, to be asked for in rising order."""

    def __init__(self, order: Path, scratch: Path) -> None:
        self._runs: list[Any] = []
        with _open_order(order) as file:
            for number, batch in enumerate(file.iter_batches(_RUN, columns=["id"])):
                ids = batch["id"].take(pc.sort_indices(batch["id"]))
                run = scratch / f"{number}.arrow"
                table = pa.table({"id": ids})
                with pa.OSFile(str(run), "wb") as out, pa.ipc.new_file(out, table.schema) as write:
                    write.write_table(table)
                mapped = pa.ipc.open_file(pa.memory_map(str(run)))
                self._runs.append(mapped.get_batch(0)["id"])
        self._at = [0] * len(self._runs)

    def has(self, ids: pa.Array) -> NDArray[np.bool_]:
        """Which of these there are; all are greater than those that were asked for before."""
        out = np.zeros(len(ids), bool)
        if not len(ids):
            return out
        last = ids[-1].as_py()
        for number, run in enumerate(self._runs):
            if pa.types.is_integer(run.type) != pa.types.is_integer(ids.type):
                continue
            first = self._at[number]
            self._at[number] = end = bisect_right(_Values(run), last, lo=first)
            for piece in range(first, end, _READ):
                some = run.slice(piece, min(_READ, end - piece)).cast(ids.type)
                out |= np.asarray(pc.is_in(ids, value_set=some))
        return out


class _Values(Sequence[Id]):
    """An Arrow array as `bisect` sees a list."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        return self._values[place].as_py()


@contextmanager
def _scratch(order: Path) -> Iterator[Path]:
    """A folder for a while: beside the order, or where the system keeps such where that is not to
    be written to, as on another machine."""
    beside = order.parent if os.access(order.parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=beside, prefix=f".{order.stem}-") as folder:
        yield Path(folder)


def _make(
    store: Store,
    upgrade: Upgrade,
    plan: Plan,
    target: Path,
    labels: str | None,
    priority: str | None,
    progress: Progress | None,
) -> None:
    extra = [name for name in (labels, priority) if name is not None]
    beside = None if is_remote(target) else target.parent
    with tempfile.TemporaryDirectory(dir=beside, prefix=f".{target.stem}-") as scratch:
        folder = Path(scratch)
        ids, numbers = SpilledColumn(folder, "id"), SpilledColumn(folder, "priority")
        classes = _Classes(store.name)
        vectors = folder / "old.parquet"
        schema = pa.schema({"old": pa.list_(pa.float32(), upgrade.old_dim_)})
        with pq.ParquetWriter(vectors, schema) as writer:
            for batch in store.stream([store.vector, *dict.fromkeys(extra)]):
                usable = batch.filter(batch[store.vector].is_valid())
                ids.add(usable[store.id])
                if labels is not None:
                    classes.add(usable[labels])
                if priority is not None:
                    numbers.add(_numbers(usable[priority]))
                old = usable[store.vector].cast(schema.field("old").type)
                writer.write_batch(pa.RecordBatch.from_arrays([old], schema=schema))
        rows = folder / "order.parquet"
        order_gallery(
            plan,
            upgrade,
            vectors,
            rows,
            labels=None if labels is None else classes.column(),
            priority=None if priority is None else np.asarray(numbers.values()),
            progress=progress,
        )
        # Row numbers back into the store's own ids, a piece at a time.
        named = ids.values()
        with pq.ParquetFile(rows) as order, replacing(target, overwrite=True) as temporary:
            kind = pa.schema({"id": named.type}, metadata=order.schema_arrow.metadata)
            with pq.ParquetWriter(temporary, kind, use_dictionary=False) as writer:
                for batch in order.iter_batches(1 << 20, columns=["id"]):
                    table = pa.table({"id": named.take(batch["id"])}, schema=kind)
                    writer.write_table(table)


class _Classes:
    """Classes of rows as they come, four bytes each; of what is missing or no number, none."""

    def __init__(self, where: object) -> None:
        self._where = where
        self._names: dict[Any, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def add(self, column: pa.Array) -> None:
        told = column.dictionary_encode()
        codes = [
            -1 if name is None or name != name else self._names.setdefault(name, len(self._names))
            for name in told.dictionary.to_pylist()
        ]
        # One more, for those that are missing.
        found = np.asarray([*codes, -1], np.int32)
        self._codes.append(found[np.asarray(told.indices.fill_null(len(codes)), np.int64)])

    def column(self) -> pa.DictionaryArray:
        codes = np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)
        names = encoded(pa.array(list(self._names)), self._where).dictionary
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), names)


def _numbers(column: pa.Array) -> pa.Array:
    """Numbers, and none of them missing: one that is has no place, and is told of later."""
    found = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return pa.array(np.asarray(found, np.float64), from_pandas=False)


def _check_unused(store: Store, journal: Journal, order: Path) -> None:
    """What rows store depends on their place in the order: it is not changed under them."""
    task = journal.backfill
    if task is not None and to_path(task.order_file) == order.resolve():
        raise BadInput(
            "was begun without labels, and its order stays as it is",
            where=f"the backfill of {store.name}",
            step="go on without --labels, or roll back and begin again",
        )


def _check_known(store: Store, order: Path) -> None:
    first = next(read_ids(order), [])[:2000]
    if not first:
        raise BadInput("holds no ids", where=order, step="make it again with --gallery")
    known = len(store.read(first, []))
    if known < _AT_LEAST_KNOWN * len(first):
        raise BadInput(
            f"is an order of other ids: of its first {len(first):,} the store has {known:,}",
            where=order,
            step="make it from this store's rows, with their ids",
        )
