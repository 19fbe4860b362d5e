"""Passes over a gallery whose parts are read, lifted and looked at by an engine's workers.

What they are handed of a row is what its file does not hold: its key, its class, its priority. What
they give back is small: sums of classes, or a number for each row and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.gallery_file import Beside, Gallery, Reading
from crossfade.backfill.items import Groups, Index, Items, class_sums
from crossfade.backfill.orders import Order
from crossfade.engines import Engine
from crossfade.errors import BadInput
from crossfade.files.parts import Part, parts_of
from crossfade.remote import to_path
from crossfade.threads import in_parts
from crossfade.upgrade import Upgrade

Urgency = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Stretch:
    """The rows of a part, and what is known of them beside their vectors."""

    part: Part
    keys: Index
    codes: NDArray[np.int32] | None
    priority: NDArray[np.float64] | None

    def items(self, reading: Reading, column: str) -> Iterator[Items]:
        beside = Beside(self.keys.__getitem__, self.codes, self.priority)
        return reading.items(self.part.source(column), beside, self.part.first)


@dataclass(frozen=True, eq=False)
class SumClasses:
    """The classes that some rows are of, the sums of F(old) over them, and their numbers."""

    reading: Reading
    column: str
    classes: int

    def __call__(self, stretch: Stretch) -> tuple[Index, NDArray[np.float64], Index]:
        sums, counts = class_sums(stretch.items(self.reading, self.column), self.classes)
        present = np.flatnonzero(counts)
        return present, sums[present], counts[present]


@dataclass(frozen=True, eq=False)
class Rate:
    """How urgent each of some rows is, by each order."""

    reading: Reading
    column: str
    orders: Mapping[str, Order]
    groups: Groups | None

    def __call__(self, stretch: Stretch) -> Urgency:
        made = [
            urgencies(items, self.orders, self.groups)
            for items in stretch.items(self.reading, self.column)
        ]
        return {name: np.concatenate([one[name] for one in made]) for name in self.orders}


def urgencies(items: Items, orders: Mapping[str, Order], groups: Groups | None) -> Urgency:
    """How urgent items are, by each order."""
    from crossfade.backfill.rows import wide_parts

    out = {name: np.empty(len(items.ids)) for name in orders}

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
            for name, order in orders.items():
                out[name][here] = order(some, groups)

    in_parts(len(items.ids), part)
    return out


def groups_by(
    engine: Engine,
    gallery: Gallery,
    upgrade: Upgrade,
    codes: NDArray[np.int32],
    classes: int,
    counted: Callable[[int], None],
) -> Groups:
    """The means of the gallery's classes; the rows of each part are `counted` as it is done."""
    sums = np.zeros((classes, upgrade.shared_dim_))
    counts = np.zeros(classes, np.int64)
    work = SumClasses(gallery.read(upgrade), gallery.source.column, classes)
    for stretch, (present, some, numbers) in engine.in_order(work, _stretches(gallery, codes)):
        sums[present] += some
        counts[present] += numbers
        counted(stretch.part.rows)
    return Groups.of_sums(sums, counts)


def urgencies_by(
    engine: Engine,
    gallery: Gallery,
    upgrade: Upgrade,
    codes: NDArray[np.int32] | None,
    orders: Mapping[str, Order],
    groups: Groups | None,
) -> Iterator[Urgency]:
    """How urgent the rows of each part are, in the order of the rows."""
    work = Rate(gallery.read(upgrade), gallery.source.column, orders, groups)
    for _, found in engine.in_order(work, _stretches(gallery, codes)):
        yield found


def _stretches(gallery: Gallery, codes: NDArray[np.int32] | None) -> Iterator[Stretch]:
    # Workers may be called in another folder.
    path, start = to_path(gallery.source.path).resolve(), 0
    parts = parts_of(path)
    if sum(part.rows for part in parts) != gallery.source.rows:
        raise BadInput("has other rows than a moment ago", where=path, step="order it again")
    for part in parts:
        here = slice(start, start + part.rows)
        yield Stretch(
            part,
            gallery.ids.keys(here),
            None if codes is None else codes[here],
            None if gallery.priority is None else gallery.priority[here],
        )
        start = here.stop
