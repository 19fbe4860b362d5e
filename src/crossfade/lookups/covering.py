"""Rows that cover a gallery: each the one that is farthest from all before it.

Where the old model is gone, B is all there is, and pairs that cover the gallery teach it more than
as many at random (docs/results.md). They are chosen by their old vectors, which are stored already,
out of a pool of random rows: one that is farthest off in ten times as many rows is far enough, and
a million rows are not read for it. Only what the maps are fitted on may be chosen so: a gallery to
judge by has to be a random sample, or no interval holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crossfade.retrieval.ranking import unit_rows
from crossfade.stores import Id, Store
from crossfade.stores.rows import id_list, matrix, unusable

POOL = 10
"""Rows to choose from, for each one that is wanted."""
Float = NDArray[np.float32]
Progress = Callable[[int, int], None]
_POOL_BYTES = 256 << 20
_READ = 10_000
# Candidates that are looked at together: enough to choose several in each pass over the pool.
_BLOCK = 512


def pool_size(rows: int, dim: int) -> int:
    """How many rows to choose `rows` from, within bounded memory; never fewer than wanted.

    >>> pool_size(5000, 384), pool_size(100_000, 1536)
    (50000, 100000)
    """
    return max(rows, min(POOL * rows, _POOL_BYTES // (4 * dim)))


def covering_ids(
    store: Store, ids: list[Id], count: int, *, progress: Progress | None = None
) -> list[Id]:
    """`count` of these ids, the first of them first, then always the farthest from those before.

    Rows that have gone or have no usable vector come last, in the order they were in.
    """
    kept: list[Id] = []
    rows: list[Float] = []
    for first in range(0, len(ids), _READ):
        some = ids[first : first + _READ]
        read = store.read(some, [store.vector])
        old = matrix(read[store.vector])
        good = np.flatnonzero(~unusable(read[store.vector], old))
        if len(good):
            keys = id_list(read[store.id])
            kept += [keys[row] for row in good.tolist()]
            rows.append(unit_rows(old[good]))
        if progress is not None:
            progress(min(first + _READ, len(ids)), len(ids))
    # A store reads rows in an order of its own.
    row_of = {key: at for at, key in enumerate(ids)}
    order = np.argsort([row_of[key] for key in kept], kind="stable")
    found: list[Id] = []
    if kept:
        pool = np.concatenate(rows)[order]
        found = [kept[order[at]] for at in farthest_first(pool, min(count, len(pool))).tolist()]
    known = set(kept)
    return (found + [key for key in ids if key not in known])[:count]


def farthest_first(rows: Float, count: int) -> NDArray[np.int64]:
    """Places of `count` unit vectors: the first, then each the farthest from all before it.

    In blocks, and exact: of the candidates that are farthest now as many are chosen as stay
    farther than any row outside the block was, whose distance can only have fallen.

    >>> farthest_first(np.array([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], "f4"), 3).tolist()
    [0, 3, 2]
    """
    chosen = np.zeros(count, np.int64)
    if not count:
        return chosen
    # The largest similarity to a chosen row: the farthest has the least.
    nearest = rows @ rows[0]
    nearest[0] = np.inf
    done = 1
    while done < count:
        block = np.argsort(nearest, kind="stable")[:_BLOCK]
        limit = _least_outside(nearest, block)
        among = rows[block]
        similar, near = among @ among.T, nearest[block]
        picked: list[int] = []
        while done + len(picked) < count:
            at = int(np.argmin(near))
            if picked and not near[at] < limit:
                break
            picked.append(at)
            near = np.maximum(near, similar[at])
            near[at] = np.inf
        chosen[done : done + len(picked)] = block[picked]
        nearest = np.maximum(nearest, (rows @ among[picked].T).max(axis=1))
        done += len(picked)
        nearest[chosen[:done]] = np.inf
    return chosen


def _least_outside(nearest: Float, block: NDArray[np.int64]) -> float:
    outside = np.ones(len(nearest), bool)
    outside[block] = False
    return float(nearest[outside].min(initial=np.inf))
