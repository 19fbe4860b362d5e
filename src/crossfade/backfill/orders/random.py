"""In no particular order, and yet always the same: by a hash of the id."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.backfill.orders.contract import Order


class Random(Order):
    """Uniform numbers that depend on nothing but the id."""

    name = "random"
    by_vectors = False

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        mixed = items.ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return np.asarray((mixed >> np.uint64(11)) / float(1 << 53))
