"""In which order a store's rows are re-embedded: the plan's order, over the rows that are there."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crossfade.backfill.gallery import notes_on, order_gallery, reading_order
from crossfade.backfill.gallery_file import NEAREST
from crossfade.backfill.plan import ORDER, PLAN, Plan
from crossfade.errors import BadInput
from crossfade.files import replacing
from crossfade.journal.journal import Journal
from crossfade.migration.forward import Progress
from crossfade.stores import Id, Store
from crossfade.stores.rows import id_list
from crossfade.upgrade import Upgrade

# Of an order made elsewhere so many ids must be the store's: rows come and go meanwhile.
_AT_LEAST_KNOWN = 0.5
_READ = 100_000


def plan_hash(folder: Path) -> str:
    """The hash of plan.json: another plan in the same folder is another plan."""
    try:
        return hashlib.sha256((folder / PLAN).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(
            f"is no plan ({error.strerror})", where=folder, step="name its folder"
        ) from None


def order_of(
    store: Store,
    upgrade: Upgrade,
    plan: Plan,
    folder: Path,
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
    given = folder / ORDER
    if given.is_file():
        _check_known(store, given)
        return given
    # By the migration, not by the store's name: there are many `items.lance`.
    name = hashlib.sha256(f"{journal.migration}/{plan_hash(folder)}".encode()).hexdigest()[:16]
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
        _make(store, upgrade, plan, made, labels, priority, progress)
    return made


def ids_of(path: Path) -> Iterator[list[Id]]:
    """The ids of an order, in pieces."""
    with reading_order(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_READ, columns=["id"]):
            yield id_list(batch["id"])


def placed(path: Path) -> Iterator[tuple[Id, int]]:
    """Every id of an order, with its place."""
    place = 0
    for ids in ids_of(path):
        yield from ((key, place + i) for i, key in enumerate(ids))
        place += len(ids)


def places_of(path: Path, wanted: Collection[Id], otherwise: int) -> dict[Id, int]:
    """Where these ids stand in an order; `otherwise` for those it does not know."""
    out = dict.fromkeys(wanted, otherwise)
    out.update((key, place) for key, place in placed(path) if key in out)
    return out


def _make(
    store: Store,
    upgrade: Upgrade,
    plan: Plan,
    target: Path,
    labels: str | None,
    priority: str | None,
    progress: Progress | None,
) -> None:
    ids: list[Id] = []
    extra: dict[str, list[Any]] = {name: [] for name in (labels, priority) if name is not None}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as scratch:
        vectors = Path(scratch) / "old.parquet"
        schema = pa.schema({"old": pa.list_(pa.float32(), upgrade.old_dim_)})
        with pq.ParquetWriter(vectors, schema) as writer:
            for batch in store.stream([store.vector, *extra]):
                usable = batch.filter(batch[store.vector].is_valid())
                ids += id_list(usable[store.id])
                for name, values in extra.items():
                    values += usable[name].to_pylist()
                old = usable[store.vector].cast(schema.field("old").type)
                writer.write_batch(pa.RecordBatch.from_arrays([old], schema=schema))
        rows = Path(scratch) / "order.parquet"
        order_gallery(
            plan,
            upgrade,
            vectors,
            rows,
            labels=None if labels is None else pa.array(extra[labels]),
            priority=None if priority is None else np.asarray(extra[priority], np.float64),
            progress=progress,
        )
        by_place = pq.read_table(rows)
    # Row numbers back into the store's own ids.
    ordered = pa.array(ids).take(by_place["id"].combine_chunks())
    with replacing(target, overwrite=True) as temporary:
        pq.write_table(pa.table({"id": ordered}, metadata=by_place.schema.metadata), temporary)


def _check_unused(store: Store, journal: Journal, order: Path) -> None:
    """What rows store depends on their place in the order: it is not changed under them."""
    task = journal.backfill
    if task is not None and Path(task.order_file) == order.resolve():
        raise BadInput(
            "was begun without labels, and its order stays as it is",
            where=f"the backfill of {store.name}",
            step="go on without --labels, or roll back and begin again",
        )


def _check_known(store: Store, order: Path) -> None:
    first = next(ids_of(order), [])[:2000]
    if not first:
        raise BadInput("holds no ids", where=order, step="make it again with --gallery")
    known = len(store.read(first, []))
    if known < _AT_LEAST_KNOWN * len(first):
        raise BadInput(
            f"is an order of other ids: of its first {len(first):,} the store has {known:,}",
            where=order,
            step="make it from this store's rows, with their ids",
        )
