"""The order of a real gallery: two streaming passes, bounded memory, a sorted file of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.apply import SPACE
from crossfade.backfill.folder import Loaded
from crossfade.backfill.items import Groups, Items
from crossfade.backfill.orders import NEED_GROUPS, Order, combined, order_named, positions
from crossfade.backfill.simulate import ALIGNMENT
from crossfade.errors import BadInput
from crossfade.files import Source, open_source, replacing, split_name
from crossfade.upgrade import Upgrade

_BATCH_BYTES = 64 << 20
Progress = Callable[[int, int], None]


def order_gallery(
    loaded: Loaded,
    upgrade: Upgrade,
    gallery: str | Path,
    target: Path,
    *,
    ids: NDArray[Any] | None = None,
    labels: NDArray[np.int64] | None = None,
    priority: NDArray[np.float64] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the ids of a gallery of old vectors, most urgent first, as Parquet; gives the rows.

    `ids` are the rows' numbers by default. A gallery that F has lifted already is taken as it is.
    """
    source = open_source(*split_name(gallery))
    rows = source.rows
    for name, values in (("ids", ids), ("labels", labels), ("priorities", priority)):
        if values is not None and len(values) != rows:
            raise BadInput(f"there are {len(values)} {name} for {rows} rows", where=gallery)
    known = np.arange(rows) if ids is None else np.asarray(ids)
    if len(np.unique(known)) != rows:
        raise BadInput("an id is given twice", where=gallery, step="give every item its own id")
    if known.dtype.kind not in "iu":
        raise BadInput(f"ids are {known.dtype}", where=gallery, step="give whole numbers")
    names = loaded.plan.order.split("+")
    passes = 1 + (loaded.groups is not None and loaded.groups.labelled and bool(_grouped(names)))
    done = 0

    def batches() -> Iterator[Items]:
        nonlocal done
        start = 0
        for block in _lifted(source, upgrade):
            old, lifted = block
            here = slice(start, start + len(old))
            start += len(old)
            yield Items(
                known[here].astype(np.int64),
                old,
                lifted,
                None if labels is None else labels[here],
                None if priority is None else priority[here],
            )
            done += len(old)
            if progress is not None:
                progress(done, passes * rows)

    groups = loaded.groups
    if groups is not None and groups.labelled and _grouped(names):
        if labels is None:
            raise BadInput(
                "the plan's order goes by class, and the gallery has no labels",
                where=gallery,
                step="give --gallery-labels, or plan with orders that need no classes",
            )
        groups = Groups.of_classes(batches(), classes=int(labels.max()) + 1)
    learned: dict[str, Order] = {} if loaded.alignment is None else {ALIGNMENT: loaded.alignment}
    urgency = {name: np.empty(rows) for name in names}
    start = 0
    for items in batches():
        for name in names:
            order = order_named(name, learned)
            urgency[name][start : start + len(items.ids)] = order(items, groups)
        start += len(items.ids)
    places = [positions(urgency[name], known.astype(np.int64)) for name in names]
    place = places[0] if len(places) == 1 else combined(*places)
    by_place = np.empty(rows, np.int64)
    by_place[place] = np.arange(rows)
    with replacing(target, overwrite=overwrite) as temporary:
        pq.write_table(pa.table({"id": known[by_place]}), temporary)
    return rows


def _grouped(names: list[str]) -> frozenset[str]:
    return NEED_GROUPS & set(names)


def _lifted(source: Source, upgrade: Upgrade) -> Iterator[tuple[Any, Any]]:
    shared = source.metadata.get(SPACE) == "shared"
    size = max(1, _BATCH_BYTES // (4 * (source.dim + upgrade.shared_dim_)))
    for block in source.vectors(size):
        old = np.ascontiguousarray(block, np.float32)
        yield old, old if shared else upgrade.forward(old)
