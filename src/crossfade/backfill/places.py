"""Where every item of a simulated gallery stands in each order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float, Groups, Index, Items
from crossfade.backfill.orders import Order, combined, cross_fit, order_named, positions


def places_in(
    orders: Sequence[str], items: Items, mapped: Float, seed: int
) -> tuple[dict[str, Index], Groups | None, dict[str, Order]]:
    """The place of every item in each order, and what the orders were made with."""
    names = sorted({part for order in orders for part in order.split("+")})
    found = {name: order_named(name) for name in names}
    by_groups = any(order.by_groups for order in found.values())
    groups = _groups(items, seed) if by_groups else None
    learned, urgency = {}, {}
    for name, order in found.items():
        if order.learns:
            learned[name], urgency[name] = cross_fit(order, items, mapped, seed)
        else:
            urgency[name] = order(items, groups)
    places = {name: positions(told, items.ids) for name, told in urgency.items()}
    return {order: _joined(order, places) for order in orders}, groups, learned


def filled_first(place: Index, filled: NDArray[np.bool_]) -> Index:
    """The same order, with those items first that are backfilled already.

    >>> filled_first(np.array([0, 1, 2]), np.array([False, False, True]))
    array([1, 2, 0])
    """
    if not filled.any():
        return place
    out = np.empty_like(place)
    out[np.lexsort((place, ~filled))] = np.arange(len(place))
    return out


def _groups(items: Items, seed: int) -> Groups:
    if items.labels is None:
        return Groups.by_kmeans(items.lifted, seed=seed)
    return Groups.of_classes([items], classes=int(items.labels.max()) + 1)


def _joined(order: str, places: dict[str, Index]) -> Index:
    parts = [places[name] for name in order.split("+")]
    return parts[0] if len(parts) == 1 else combined(*parts)
