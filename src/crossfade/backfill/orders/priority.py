"""By the user's own numbers: traffic, revenue, age."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.backfill.orders.contract import Order
from crossfade.errors import BadInput


class Priority(Order):
    """Highest first."""

    name = "priority"
    by_vectors = False
    by_priority = True

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        if items.priority is None:
            raise BadInput("the items have no priorities", step="name the column that holds them")
        return np.asarray(items.priority, dtype=np.float64)
