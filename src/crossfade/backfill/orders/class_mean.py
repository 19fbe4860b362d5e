"""The paper's orders (Section 3.6, Appendix G): by distance of F(old) to its class mean."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Index, Items
from crossfade.errors import BadInput, MissingExtra


def far_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by mean squared error."""
    found = with_means("squared_gaps", items, *_own(items, groups))
    return np.asarray(found / items.lifted.shape[1])


def near_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Nearest first."""
    return -far_mse(items, groups)


def far_cosine(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by cosine distance."""
    return 1.0 - with_means("cosines", items, *_own(items, groups))


def with_means(
    measure: Literal["squared_gaps", "cosines"], items: Items, groups: Groups, codes: Index
) -> NDArray[np.float64]:
    """The measure of each F(old) and the mean of the group that its code names."""
    try:
        from crossfade.backfill import rows
    except ImportError as error:
        raise MissingExtra("numba", extra="plan", need="an order by class") from error
    out = np.empty(len(codes))
    compiled: Any = getattr(rows, measure)
    lifted = np.ascontiguousarray(items.lifted, np.float32)
    compiled(lifted, groups.narrow, np.ascontiguousarray(codes, np.int64), out)
    return out


def _own(items: Items, groups: Groups | None) -> tuple[Groups, Index]:
    if groups is None:
        raise BadInput("this order needs groups", step="give labels, or groups by k-means")
    return groups, groups.codes(items)
