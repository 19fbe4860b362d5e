"""Some rows of a store by chance, whatever number it turns out to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from crossfade.stores.contract import Id, RandomAccess, Store
from crossfade.stores.rows import id_list

_AT_ONCE = 100_000
Among = Callable[[Sequence[Id]], NDArray[np.bool_]]
Progress = Callable[[int], object]


def draw_ids(
    store: Store,
    rows: int,
    seed: int = 0,
    *,
    among: Among | None = None,
    progress: Progress | None = None,
) -> list[Id]:
    """Ids of so many rows in a random order, each as likely as the others.

    `among` says of ids which may be drawn; `progress` is told how many rows were looked at.
    """
    if among is None and progress is None and isinstance(store, RandomAccess):
        return store.draw(rows, seed)
    rng = np.random.default_rng(seed)
    kept: list[Id] = []
    marks = np.empty(0)
    looked_at = 0
    for batch in store.stream([], size=_AT_ONCE):
        ids = id_list(batch[store.id])
        fresh = rng.random(len(ids))
        if among is not None:
            may = among(ids)
            ids, fresh = [one for one, good in zip(ids, may, strict=True) if good], fresh[may]
        # The rows of the smallest random numbers, whatever the number of rows turns out to be.
        ids = [*kept, *ids]
        marks = np.concatenate([marks, fresh])
        first = np.argsort(marks, kind="stable")[:rows]
        kept, marks = [ids[i] for i in first], marks[first]
        looked_at += len(batch)
        if progress is not None:
            progress(looked_at)
    return kept
