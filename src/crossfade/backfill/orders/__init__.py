"""Orders: who is re-embedded first. Each is a file here and a line in `ORDERS`.

Equal urgencies go by id, so that an order is the same however the gallery is stored. Other
distributions add an order by an entry point in the group `crossfade.orders`: its name, and a class
or a value that is an `Order`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Index
from crossfade.backfill.orders.alignment import AlignmentError
from crossfade.backfill.orders.class_mean import FarCosine, FarMse, NearMse
from crossfade.backfill.orders.contract import Order, cross_fit
from crossfade.backfill.orders.margin import SmallMargin
from crossfade.backfill.orders.priority import Priority
from crossfade.backfill.orders.random import Random
from crossfade.errors import BadInput

GROUP = "crossfade.orders"
ORDERS: dict[str, Order] = {
    order.name: order
    for order in (
        Random(),
        FarMse(),
        FarCosine(),
        NearMse(),
        SmallMargin(),
        Priority(),
        AlignmentError(),
    )
}
"""Those of this package, by name; one that learns has learned nothing yet."""


def order_named(name: str, learned: Mapping[str, Order] | None = None) -> Order:
    """The order of that name: as it was `learned`, or of this package, or of another.

    >>> order_named("far-mse").by_groups
    True
    """
    found = (learned or {}).get(name) or ORDERS.get(name) or _other(name)
    if found is None:
        known = dict.fromkeys([*ORDERS, *(entry.name for entry in entry_points(group=GROUP))])
        raise BadInput(f"there is no order {name!r}", step=f"use one of {', '.join(known)}")
    return found


def orders_in(text: str) -> list[Order]:
    """The orders of a name, which may be of two that are combined by a plus.

    >>> [order.name for order in orders_in("near-mse+random")]
    ['near-mse', 'random']
    """
    return [order_named(name) for name in text.split("+")]


def saved_tensors(learned: Iterable[Order]) -> dict[str, NDArray[Any]]:
    """What these orders have learned, as a plan keeps it."""
    return {
        f"{order.saved_as or order.name}.{name}": values
        for order in learned
        for name, values in order.save().items()
    }


def load_learned(text: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, Order]:
    """Those of the orders of `text` that learn, from what `saved_tensors` gave."""
    out = {}
    for name in text.split("+"):
        order = ORDERS.get(name) or _other(name)
        if order is None or not order.learns:
            continue
        begin = f"{order.saved_as or order.name}."
        mine = {key.removeprefix(begin): v for key, v in tensors.items() if key.startswith(begin)}
        if mine:
            out[name] = order.load(mine)
    return out


@cache
def _other(name: str) -> Order | None:
    """The order that another distribution adds; loaded when it is asked for."""
    for entry in entry_points(group=GROUP, name=name):
        try:
            found = entry.load()
            found = found() if isinstance(found, type) else found
        except Exception as error:
            raise _broken(entry, f"cannot be loaded ({type(error).__name__}: {error})") from error
        if not isinstance(found, Order):
            raise _broken(entry, f"{entry.value} is no Order")
        return found
    return None


def _broken(entry: EntryPoint, cause: str) -> BadInput:
    name = entry.dist.name if entry.dist is not None else "its distribution"
    return BadInput(cause, where=f"the order {entry.name!r}", step=f"mend or uninstall {name}")


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


__all__ = [
    "ORDERS",
    "AlignmentError",
    "Order",
    "combined",
    "cross_fit",
    "load_learned",
    "order_named",
    "orders_in",
    "positions",
    "saved_tensors",
]
