"""Every order and blend on held-out pairs: what backfilling would have bought.

Nothing is assumed to help. The held-out rows play the gallery: they start as F(old) and turn into
the blend of B(new) and F(old) in each order, with B(new) as queries, as in the paper's protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.blend import blend
from crossfade.backfill.curve import POINTS, Curve, curves
from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders import (
    NEED_GROUPS,
    ORDERS,
    AlignmentError,
    combined,
    order_named,
    positions,
)
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import sides
from crossfade.errors import BadInput
from crossfade.retrieval import Distance, Measured, SameClass, measure
from crossfade.upgrade import Upgrade

BLENDS = (1.0, 0.85, 0.7, 0.5)
ALIGNMENT = "alignment-error"
DEFAULT_ORDERS = (*(name for name in ORDERS if name != "priority"), ALIGNMENT)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Candidate:
    """An order and a blend, and the curve they give."""

    order: str
    blend: float
    curve: Curve


@dataclass(frozen=True, eq=False)
class Simulation:
    """All candidates, and the lines they are compared with."""

    candidates: list[Candidate]
    old: Measured
    new: Measured
    groups: Groups | None
    alignment: AlignmentError | None


def simulate(
    upgrade: Upgrade,
    held: Held,
    *,
    orders: Sequence[str] = DEFAULT_ORDERS,
    blends: Sequence[float] = BLENDS,
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    points: int = POINTS,
    distance: Distance = "cosine",
    priority: NDArray[np.float64] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Curves of all `orders` (two joined by '+' are combined) and `blends`."""
    if held.relevance is None:
        raise BadInput(
            "a plan is made on labels or qrels", where=held.name, step="give --labels or --qrels"
        )
    gallery = sides(upgrade, held.gallery_old, held.gallery_new)
    same = held.query_old is held.gallery_old
    queries = gallery if same else sides(upgrade, held.query_old, held.query_new)
    lifted, mapped = gallery["F(old)"], gallery["B(new)"]
    labels = held.relevance.gallery_labels if isinstance(held.relevance, SameClass) else None
    items = Items(np.arange(held.gallery), held.gallery_old, lifted, labels, priority)
    names = {part for order in orders for part in order.split("+")}
    groups = _groups(items, seed) if names & NEED_GROUPS else None
    alignment, urgency = None, {}
    for name in sorted(names):
        if name == ALIGNMENT:
            alignment, urgency[name] = _cross_fitted(items, mapped, seed)
        else:
            urgency[name] = order_named(name)(items, groups)
    places = {name: positions(found, items.ids) for name, found in urgency.items()}
    taken = {order: _joined(order, places) for order in orders}
    found = []
    for done, a in enumerate(blends, 1):
        after = blend(mapped, lifted, a)
        by_order = curves(
            queries["B(new)"],
            lifted,
            after,
            taken,
            held.relevance,
            metrics,
            points=points,
            distance=distance,
        )
        found += [Candidate(order, a, curve) for order, curve in by_order.items()]
        if progress is not None:
            progress(done, len(blends))
    lines = [
        measure(queries[side], gallery[side], held.relevance, metrics, distance=distance)
        for side in ("old", "new")
    ]
    return Simulation(found, lines[0], lines[1], groups, alignment)


def _groups(items: Items, seed: int) -> Groups:
    if items.labels is None:
        return Groups.by_kmeans(items.lifted, seed=seed)
    return Groups.of_classes([items], classes=int(items.labels.max()) + 1)


def _joined(order: str, places: dict[str, Index]) -> Index:
    parts = [places[name] for name in order.split("+")]
    return parts[0] if len(parts) == 1 else combined(*parts)


def _cross_fitted(
    items: Items, mapped: NDArray[np.float32], seed: int
) -> tuple[AlignmentError, NDArray[np.float64]]:
    """The order learned from all pairs, and urgencies that no item's own pair has told."""
    fold = np.random.default_rng(seed).permutation(len(mapped)) % 2
    urgency = np.empty(len(mapped))
    for side in (0, 1):
        learn, tell = fold == side, fold != side
        order = AlignmentError.learn(items.old[learn], items.lifted[learn], mapped[learn])
        urgency[tell] = order(Items(items.ids[tell], items.old[tell], items.lifted[tell]))
    return AlignmentError.learn(items.old, items.lifted, mapped), urgency
