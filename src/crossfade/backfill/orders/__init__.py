"""Orders: who is re-embedded first. Each is a file here and a line in `ORDERS`.

An order gives every item an urgency, larger first; equal ones go by id, so that an order is the
same however the gallery is stored.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders.alignment import AlignmentError
from crossfade.backfill.orders.class_mean import far_cosine, far_mse, near_mse
from crossfade.backfill.orders.margin import small_margin
from crossfade.backfill.orders.priority import by_priority
from crossfade.backfill.orders.random import at_random
from crossfade.errors import BadInput


class Order(Protocol):
    """Urgencies of some items; `groups` are those of the whole gallery."""

    def __call__(self, items: Items, groups: Groups | None, /) -> NDArray[np.float64]: ...


ORDERS: dict[str, Order] = {
    "random": at_random,
    "far-mse": far_mse,
    "far-cosine": far_cosine,
    "near-mse": near_mse,
    "small-margin": small_margin,
    "priority": by_priority,
}
"""By name; `ALIGNMENT` is learned from pairs and made by `AlignmentError.learn`."""

ALIGNMENT = "alignment-error"
NEED_GROUPS = frozenset({"far-mse", "far-cosine", "near-mse", "small-margin"})
NEED_NO_VECTORS = frozenset({"random", "priority"})


def positions(urgency: NDArray[np.float64], ids: Index) -> Index:
    """The place of each item in the order, from 0: most urgent first, then by id.

    >>> positions(np.array([0.5, 2.0, 0.5]), np.array([7, 8, 3]))
    array([2, 0, 1])
    """
    if not np.isfinite(urgency).all():
        raise BadInput("an order has urgencies that are not finite numbers")
    out = np.empty(len(ids), np.int64)
    out[np.lexsort((ids, -urgency))] = np.arange(len(ids))
    return out


def combined(*places: Index) -> Index:
    """One order from several: by the mean of an item's places, then by its first.

    >>> combined(np.array([0, 1, 2]), np.array([1, 0, 2]))
    array([0, 1, 2])
    """
    total = np.sum(places, axis=0)
    out = np.empty(len(total), np.int64)
    out[np.lexsort((places[0], total))] = np.arange(len(total))
    return out


def order_named(name: str, learned: dict[str, Order] | None = None) -> Order:
    """The order of that name."""
    known: dict[str, Any] = ORDERS | (learned or {})
    if name not in known:
        raise BadInput(f"there is no order {name!r}", step=f"use one of {', '.join(known)}")
    order: Order = known[name]
    return order


__all__ = [
    "ALIGNMENT",
    "NEED_GROUPS",
    "NEED_NO_VECTORS",
    "ORDERS",
    "AlignmentError",
    "Order",
    "combined",
    "order_named",
    "positions",
]
