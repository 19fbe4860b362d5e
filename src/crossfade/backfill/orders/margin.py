"""By margin: items nearly as close to another class mean as to their own come first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.errors import BadInput


def small_margin(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Smallest distance to another mean, less that to the own one, first."""
    if groups is None or len(groups.means) < 2:
        raise BadInput("a margin needs at least two groups")
    distances = groups.distances(items.lifted)
    codes = groups.codes(items)
    rows = np.arange(len(codes))
    own = distances[rows, codes]
    distances[rows, codes] = np.inf
    return np.asarray(own - distances.min(axis=1))
