"""By margin: items nearly as close to another class mean as to their own come first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.errors import BadInput


def small_margin(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Smallest squared distance to another mean, less that to the own one, first."""
    if groups is None or np.count_nonzero(groups.present) < 2:
        raise BadInput("a margin needs at least two groups")
    codes = groups.codes(items)
    out = np.empty(len(codes))
    for rows, near in groups.nearness(items.lifted):
        here, own = np.arange(len(near)), codes[rows]
        mine = near[here, own]
        near[here, own] = -np.inf
        out[rows] = 2.0 * (near.max(axis=1) - mine)
    return out
