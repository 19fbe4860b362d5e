"""By the user's own numbers: traffic, revenue, age."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.errors import BadInput


def by_priority(items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
    """Highest first."""
    if items.priority is None:
        raise BadInput("the items have no priorities", step="name the column that holds them")
    return np.asarray(items.priority, dtype=np.float64)
