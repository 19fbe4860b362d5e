"""The order of a real gallery: two streaming passes, bounded memory, a sorted file of ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.backfill.classes import class_codes
from crossfade.backfill.external import Runs, scratch, spread
from crossfade.backfill.gallery_file import Gallery
from crossfade.backfill.gallery_parts import Urgency, groups_by, urgencies, urgencies_by
from crossfade.backfill.ids import Ids, Values
from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders import Order, order_named
from crossfade.backfill.plan import Plan
from crossfade.engines import Engine
from crossfade.errors import BadInput, BadRow
from crossfade.files import replacing
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
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the ids of a gallery of old vectors, most urgent first, as Parquet; gives the rows.

    `ids` are the rows' numbers by default. A gallery that F has lifted already, as the metadata of
    its file tells, is taken as it is. Without `labels`, an order by class goes by the nearest of
    the plan's class means; the file written says so (`notes_on`). The workers of an `engine` read
    the gallery, where its format has parts, and lift it; what is sorted is sorted here.
    """
    if not isinstance(gallery, Gallery):
        gallery = Gallery.open(upgrade, gallery, ids=ids, labels=labels, priority=priority)
    orders = {name: order_named(name, plan.learned) for name in plan.record.order.split("+")}
    notes = gallery.check_orders([plan.record.order], plan.record.classes)
    rows, groups, codes = gallery.source.rows, plan.groups, None
    by_class = any(order.by_groups for order in orders.values()) and bool(
        groups is not None and groups.labelled
    )
    if groups is not None and gallery.by_nearness(plan.record.order, plan.record.classes):
        groups, by_class = groups.by_nearness(), False
    if not any(order.by_vectors for order in orders.values()):
        # There is nothing to read.
        engine = None
    pass_over = _Pass(gallery, upgrade, engine, _counting(progress, (1 + by_class) * rows))
    if by_class:
        known = plan.record.classes or []
        codes, classes = class_codes(gallery.labels, known, gallery.source.path)
        groups = pass_over.groups(codes, classes)
    with scratch(target, rows) as folder:
        urgency = {name: spread(folder, rows, np.float64) for name in orders}
        start = 0
        for found in pass_over.urgencies(codes, orders, groups):
            count = 0
            for name, some in found.items():
                count = len(some)
                urgency[name][start : start + count] = some
                if not np.isfinite(some).all():
                    row = start + int(np.flatnonzero(~np.isfinite(some))[0])
                    raise BadRow(
                        row,
                        f"has no place in the order {name}: a number of it is not finite",
                        where=gallery.source.path,
                        side=gallery.source.column,
                    )
            start += count
        ordered = [gallery.ids.most_urgent_first(each, folder) for each in urgency.values()]
        with replacing(target, overwrite=overwrite) as temporary:
            _write(temporary, gallery.ids, _joined(ordered, folder), notes)
    return rows


@dataclass(frozen=True, eq=False)
class _Pass:
    """A pass over a gallery, by this process or by the workers of an engine."""

    gallery: Gallery
    upgrade: Upgrade
    engine: Engine | None
    counted: Callable[[int], None]

    def groups(self, codes: NDArray[np.int32], classes: int) -> Groups:
        if self.engine is None:
            return Groups.of_classes(self._items(codes), classes=classes)
        given = (self.gallery, self.upgrade, codes, classes, self.counted)
        return groups_by(self.engine, *given)

    def urgencies(
        self,
        codes: NDArray[np.int32] | None,
        orders: Mapping[str, Order],
        groups: Groups | None,
    ) -> Iterator[Urgency]:
        if self.engine is None:
            vectors = any(order.by_vectors for order in orders.values())
            for items in self._items(codes, vectors=vectors):
                yield urgencies(items, orders, groups)
            return
        for found in urgencies_by(self.engine, self.gallery, self.upgrade, codes, orders, groups):
            self.counted(len(next(iter(found.values()))))
            yield found

    def _items(self, codes: NDArray[np.int32] | None, *, vectors: bool = True) -> Iterator[Items]:
        for items in self.gallery.batches(self.upgrade, codes, vectors=vectors):
            yield items
            self.counted(len(items.ids))


def _counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def counted(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, total)

    return counted


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
