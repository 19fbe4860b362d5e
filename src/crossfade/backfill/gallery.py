"""The order of a real gallery: two streaming passes, bounded memory, a sorted file of ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.backfill.classes import class_codes
from crossfade.backfill.external import Runs, scratch, spread
from crossfade.backfill.gallery_file import Gallery
from crossfade.backfill.ids import Ids, Values
from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders import Order, order_named
from crossfade.backfill.plan import Plan
from crossfade.errors import BadInput, BadRow
from crossfade.files import replacing
from crossfade.threads import in_parts
from crossfade.upgrade import Upgrade

_WRITTEN = 1 << 20
_NOTES = b"crossfade.notes"
Progress = Callable[[int, int], None]


def order_gallery(
    plan: Plan,
    upgrade: Upgrade,
    gallery: str | Path | Gallery,
    target: Path,
    *,
    ids: Values | None = None,
    labels: Values | None = None,
    priority: NDArray[np.float64] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the ids of a gallery of old vectors, most urgent first, as Parquet; gives the rows.

    `ids` are the rows' numbers by default. A gallery that F has lifted already, as the metadata of
    its file tells, is taken as it is. Without `labels`, an order by class goes by the nearest of
    the plan's class means; the file written says so (`notes_on`).
    """
    if not isinstance(gallery, Gallery):
        gallery = Gallery.open(upgrade, gallery, ids=ids, labels=labels, priority=priority)
    orders = {name: order_named(name, plan.learned) for name in plan.record.order.split("+")}
    notes = gallery.check_orders([plan.record.order], plan.record.classes)
    grouped = any(order.by_groups for order in orders.values())
    vectors = any(order.by_vectors for order in orders.values())
    rows, done, groups, codes = gallery.source.rows, 0, plan.groups, None
    by_class = grouped and groups is not None and groups.labelled
    if groups is not None and gallery.by_nearness(plan.record.order, plan.record.classes):
        groups, by_class = groups.by_nearness(), False

    def batches() -> Iterator[Items]:
        nonlocal done
        for items in gallery.batches(upgrade, codes, vectors=vectors):
            yield items
            done += len(items.ids)
            if progress is not None:
                progress(done, (1 + by_class) * rows)

    if by_class:
        known = plan.record.classes or []
        codes, classes = class_codes(gallery.labels, known, gallery.source.path)
        groups = Groups.of_classes(batches(), classes=classes)
    with scratch(target, rows) as folder:
        urgency = {name: spread(folder, rows, np.float64) for name in orders}
        start = 0
        for items in batches():
            for name, order in orders.items():
                here = urgency[name][start : start + len(items.ids)]
                _fill(here, order, items, groups)
                if not np.isfinite(here).all():
                    row = start + int(np.flatnonzero(~np.isfinite(here))[0])
                    raise BadRow(
                        row,
                        f"has no place in the order {name}: a number of it is not finite",
                        where=gallery.source.path,
                        side=gallery.source.column,
                    )
            start += len(items.ids)
        found = [gallery.ids.most_urgent_first(each, folder) for each in urgency.values()]
        with replacing(target, overwrite=overwrite) as temporary:
            _write(temporary, gallery.ids, _joined(found, folder), notes)
    return rows


def notes_on(order: Path) -> list[str]:
    """What was worth a note when this file of ids was made."""
    with reading_order(order), order.open("rb") as raw:
        found = (pq.read_schema(raw).metadata or {}).get(_NOTES, b"[]")
        notes: list[str] = json.loads(found)
    return notes


@contextmanager
def reading_order(order: Path) -> Iterator[None]:
    """A file of ids that cannot be read becomes an error that says so."""
    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"is no order, or is damaged ({words})",
            where=order,
            step="copy it again, or delete it: it is made anew from the plan",
        ) from error


def _fill(out: NDArray[np.float64], order: Order, items: Items, groups: Groups | None) -> None:
    from crossfade.backfill.rows import wide_parts

    def part(begin: int, end: int) -> None:
        for rows, lifted in wide_parts(items.lifted[begin:end]):
            here = slice(begin + rows.start, begin + rows.stop)
            some = Items(
                items.ids[here],
                items.old[here],
                lifted,
                None if items.labels is None else items.labels[here],
                None if items.priority is None else items.priority[here],
            )
            out[here] = order(some, groups)

    in_parts(len(out), part)


def _joined(orders: list[Index], folder: Path | None) -> Index:
    """Rows in order, from those of one order or of two that are combined."""
    if len(orders) == 1:
        return orders[0]
    rows = len(orders[0])
    # Only where they stand in the first is held by numbers that are sorted, and tells the row.
    total = spread(folder, rows, np.int64)
    total[:] = 0
    for order in orders:
        for first in range(0, rows, _WRITTEN):
            some = order[first : first + _WRITTEN]
            total[some] += np.arange(first, first + len(some))
    bits = np.uint64(rows.bit_length())
    mask = np.uint64((1 << int(bits)) - 1)
    out = spread(folder, rows, np.int64)
    if folder is None:
        by_first = total[orders[0]].astype(np.uint64) << bits | np.arange(rows, dtype=np.uint64)
        by_first.sort()
        out[:] = orders[0][(by_first & mask).view(np.int64)]
        return out
    runs = Runs(folder)
    for first in range(0, rows, _WRITTEN):
        some = orders[0][first : first + _WRITTEN]
        place = np.arange(first, first + len(some), dtype=np.uint64)
        runs.add(total[some].astype(np.uint64) << bits | place)
    done = 0
    for pieces in runs.buckets():
        keys = np.sort(np.concatenate(pieces))
        out[done : done + len(keys)] = orders[0][(keys & mask).view(np.int64)]
        done += len(keys)
    runs.close()
    return out


def _write(path: Path, ids: Ids, rows: Index, notes: list[str]) -> None:
    """A piece at a time: all ids in their new order would be as much again as they are."""
    schema = pa.schema({"id": ids.ordered(rows[:1]).type}, {_NOTES: json.dumps(notes)})
    # Ids in an order of their own hardly compress, and trying takes longer than all the rest.
    with pq.ParquetWriter(
        path, schema, use_dictionary=False, compression="none", write_statistics=False
    ) as writer:
        for first in range(0, len(rows), _WRITTEN):
            piece = ids.ordered(rows[first : first + _WRITTEN])
            writer.write_table(pa.table({"id": piece}, schema=schema))
