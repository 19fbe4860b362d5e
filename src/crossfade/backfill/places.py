"""Where every item of a simulated gallery stands in each order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float, Groups, Index, Items
from crossfade.backfill.orders import (
    ALIGNMENT,
    NEED_GROUPS,
    AlignmentError,
    combined,
    order_named,
    positions,
)


def places_in(
    orders: Sequence[str], items: Items, mapped: Float, seed: int
) -> tuple[dict[str, Index], Groups | None, AlignmentError | None]:
    """The place of every item in each order, and what the orders were made with."""
    names = {part for order in orders for part in order.split("+")}
    groups = _groups(items, seed) if names & NEED_GROUPS else None
    alignment, urgency = None, {}
    for name in sorted(names):
        if name == ALIGNMENT:
            alignment, urgency[name] = _cross_fitted(items, mapped, seed)
        else:
            urgency[name] = order_named(name)(items, groups)
    places = {name: positions(found, items.ids) for name, found in urgency.items()}
    return {order: _joined(order, places) for order in orders}, groups, alignment


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


def _cross_fitted(
    items: Items, mapped: Float, seed: int
) -> tuple[AlignmentError, NDArray[np.float64]]:
    """The order learned from all pairs, and urgencies that no item's own pair has told."""
    fold = np.random.default_rng(seed).permutation(len(mapped)) % 2
    urgency = np.empty(len(mapped))
    for side in (0, 1):
        learn, tell = fold == side, fold != side
        order = AlignmentError.learn(items.old[learn], items.lifted[learn], mapped[learn])
        urgency[tell] = order(Items(items.ids[tell], items.old[tell], items.lifted[tell]))
    return AlignmentError.learn(items.old, items.lifted, mapped), urgency
