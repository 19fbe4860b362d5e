"""By margin: items nearly as close to another class mean as to their own come first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.backfill.orders.class_mean import with_means
from crossfade.backfill.orders.contract import Order
from crossfade.errors import BadInput


class SmallMargin(Order):
    """Smallest squared distance to another mean, less that to the own one, first."""

    name = "small-margin"
    by_groups = True

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        if groups is None or np.count_nonzero(groups.present) < 2:
            raise BadInput("a margin needs at least two groups")
        own = groups.codes(items)
        other = np.empty_like(own)
        for rows, near in groups.nearness(items.lifted):
            near[np.arange(len(near)), own[rows]] = -np.inf
            other[rows] = near.argmax(axis=1)
        # A product's last bits depend on how rows are batched: it finds the other, and no more.
        return with_means("squared_gaps", items, groups, own) - with_means(
            "squared_gaps", items, groups, other
        )
