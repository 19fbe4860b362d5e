"""A gallery file to be ordered: what can be wrong with it is found before it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.backfill.classes import check_classes, encoded
from crossfade.backfill.ids import Ids, Values
from crossfade.backfill.items import Index, Items
from crossfade.backfill.orders import orders_in
from crossfade.errors import BadInput, BadRow
from crossfade.files import Source, open_source, split_name
from crossfade.threads import ahead
from crossfade.upgrade import Upgrade
from crossfade.upgrade.apply import DIRECTION, SPACE, UPGRADE

_BATCH_BYTES = 64 << 20
NEAREST = (
    "no labels: each item counts to the nearest class mean of the plan, "
    "whose curve was made with labels and may promise too much"
)
"""Of an order by class that was made without the gallery's classes."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """A gallery to be ordered, all of it checked that can be without reading the vectors."""

    source: Source
    ids: Ids
    labels: pa.DictionaryArray | None
    priority: NDArray[np.float64] | None
    lifted: bool

    @classmethod
    def open(
        cls,
        upgrade: Upgrade,
        place: str | Path,
        *,
        ids: Values | None = None,
        labels: Values | None = None,
        priority: NDArray[np.float64] | None = None,
    ) -> Gallery:
        """Old vectors in FILE or FILE:NAME, or those that F has lifted already."""
        source = open_source(*split_name(place))
        lifted = _lifted_by(upgrade, source)
        wanted = upgrade.shared_dim_ if lifted else upgrade.old_dim_
        if source.dim != wanted:
            raise BadInput(
                f"'{source.column}' has dimension {source.dim}, and the upgrade's "
                f"{'shared' if lifted else 'old'} vectors have {wanted}",
                where=source.path,
                step="give the gallery's old vectors",
            )
        if not source.rows:
            raise BadInput("is empty", where=source.path, step="give the gallery's old vectors")
        for name, values in (("labels", labels), ("priorities", priority)):
            if values is not None and len(values) != source.rows:
                raise BadInput(
                    f"there are {len(values)} {name} for {source.rows} rows", where=place
                )
        named = None if labels is None else encoded(labels, place)
        return cls(source, Ids(ids, source.rows, place), named, priority, lifted)

    def lacks(self, order: str) -> str | None:
        """What an order needs that is not there, and that nothing can stand in for."""
        for one in orders_in(order):
            if one.by_old and self.lifted:
                return f"{one.name} goes by old vectors, and these are lifted"
            if one.by_priority and self.priority is None:
                return "the plan's order goes by priority, and the gallery has none"
        return None

    def by_nearness(self, order: str, classes: Sequence[str | int] | None) -> bool:
        """Whether the order goes by `classes`, those of the pairs, and the gallery has none."""
        by_class = classes is not None and any(one.by_groups for one in orders_in(order))
        return by_class and self.labels is None

    def check_orders(self, orders: Sequence[str], classes: Sequence[str | int] | None) -> list[str]:
        """Raise if the gallery lacks what one of the orders needs; gives what is worth a note."""
        for order in orders:
            why = self.lacks(order)
            if why is not None:
                raise BadInput(
                    why,
                    where=self.source.path,
                    step="give --gallery-priority or old vectors, or plan with orders that need no "
                    "more than there is",
                )
        if any(self.by_nearness(order, classes) for order in orders):
            return [NEAREST]
        by_class = any(one.by_groups for order in orders for one in orders_in(order))
        if not by_class or classes is None or self.labels is None:
            return []
        return check_classes(self.labels, classes, self.source.path)

    def batches(
        self, upgrade: Upgrade, codes: NDArray[np.int32] | None, *, vectors: bool = True
    ) -> Iterator[Items]:
        """Items as orders see them, the next read from disk while these are worked on.

        Their vectors are there until the next are asked for.
        """
        if vectors:
            yield from self.read(upgrade).items(self.source, self.beside(codes))
            return
        step = max(1, _BATCH_BYTES // (4 * (self.source.dim + upgrade.shared_dim_)))
        for first in range(0, self.source.rows, step):
            here = slice(first, min(first + step, self.source.rows))
            # Rows without numbers, for orders that look at none.
            blank = np.empty((here.stop - first, 0), np.float32)
            yield self.beside(codes).items(here, blank, blank)

    def read(self, upgrade: Upgrade) -> Reading:
        """How its vectors are read."""
        return Reading(upgrade, self.lifted)

    def beside(self, codes: NDArray[np.int32] | None) -> Beside:
        """What is known of its rows beside their vectors, their classes by number among it."""
        return Beside(self.ids.keys, codes, self.priority)


@dataclass(frozen=True, eq=False)
class Beside:
    """What is known of rows beside their vectors: keys of their ids, classes, priorities."""

    keys: Callable[[slice], Index]
    codes: NDArray[np.int32] | None
    priority: NDArray[np.float64] | None

    def items(self, here: slice, old: Any, lifted: Any) -> Items:
        """The rows of a slice with these vectors."""
        return Items(
            self.keys(here),
            old,
            lifted,
            None if self.codes is None else self.codes[here].astype(np.int64),
            None if self.priority is None else self.priority[here],
        )


@dataclass(frozen=True, eq=False)
class Reading:
    """How vectors of a gallery become items: old ones are lifted, unless F has lifted them."""

    upgrade: Upgrade
    lifted: bool

    def items(self, source: Source, beside: Beside, first: int = 0) -> Iterator[Items]:
        """All rows of a source, which are counted from `first` in messages."""
        step = max(1, _BATCH_BYTES // (4 * (source.dim + self.upgrade.shared_dim_)))
        room = np.empty((0 if self.lifted else min(step, source.rows), source.dim), "f4")
        start = 0
        for block in ahead(source.vectors(step)):
            here = slice(start, start + len(block))
            try:
                lifted = self._lifted(block, room)
            except BadRow as error:
                moved = error.moved(first + start, where=source.path, side=source.column)
                raise moved from None
            yield beside.items(here, block, lifted)
            start = here.stop

    def _lifted(self, block: Any, room: NDArray[np.float32]) -> Any:
        from crossfade.backfill.rows import widened

        return block if self.lifted else self.upgrade.forward(widened(block, room))


def _lifted_by(upgrade: Upgrade, source: Source) -> bool:
    """Whether the file says that F has lifted its vectors; raises if another upgrade's has."""
    tags = source.metadata
    if tags.get(SPACE) != "shared":
        return False
    if tags.get(UPGRADE) != upgrade.hash_ or tags.get(DIRECTION, "forward") != "forward":
        raise BadInput(
            f"was mapped {tags.get(DIRECTION, 'forward')} by upgrade "
            f"{tags.get(UPGRADE, 'unknown')[:12]}, and this one is {upgrade.hash_[:12]}",
            where=source.path,
            step="give the gallery's old vectors, or those that this upgrade has lifted",
        )
    return True
