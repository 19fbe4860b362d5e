"""The paper's orders (Section 3.6, Appendix G): by distance of F(old) to its class mean."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders.contract import Order
from crossfade.errors import BadInput, MissingExtra


class FarMse(Order):
    """Farthest first by mean squared error."""

    name = "far-mse"
    by_groups = True

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        found = with_means("squared_gaps", items, *_own(items, groups))
        return np.asarray(found / items.lifted.shape[1])


class NearMse(FarMse):
    """Nearest first."""

    name = "near-mse"

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        return -super().__call__(items, groups)


class FarCosine(Order):
    """Farthest first by cosine distance."""

    name = "far-cosine"
    by_groups = True

    def __call__(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
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
