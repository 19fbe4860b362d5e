"""The paper's orders (Section 3.6, Appendix G): by distance of F(old) to its class mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.errors import BadInput, MissingExtra


def far_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by mean squared error."""
    return np.asarray(_with_own("squared_gaps", items, groups) / items.lifted.shape[1])


def near_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Nearest first."""
    return -far_mse(items, groups)


def far_cosine(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by cosine distance."""
    return 1.0 - _with_own("cosines", items, groups)


def _with_own(name: str, items: Items, groups: Groups | None) -> NDArray[np.float64]:
    if groups is None:
        raise BadInput("this order needs groups", step="give labels, or groups by k-means")
    codes = np.ascontiguousarray(groups.codes(items), np.int64)
    try:
        from crossfade.backfill import rows
    except ImportError as error:
        raise MissingExtra("numba", extra="plan", need="an order by class") from error
    out = np.empty(len(codes))
    compiled: Any = getattr(rows, name)
    compiled(np.ascontiguousarray(items.lifted, np.float32), groups.narrow, codes, out)
    return out
