"""Every order and blend on held-out pairs: what backfilling would have bought.

Nothing is assumed to help. The held-out rows play the gallery: they start as F(old) and turn into
the blend of B(new) and F(old) in each order, with B(new) as queries, as in the paper's protocol.
First all orders are tried with every constant blend, then the best of them with blends and volumes
that change along the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.blend import Blend, stored
from crossfade.backfill.curve import POINTS, Curve, Line, curves
from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders import ALIGNMENT, ORDERS, AlignmentError
from crossfade.backfill.places import filled_first, places_in
from crossfade.backfill.start import LIFTED, State, held_before
from crossfade.backfill.volume import Quiet
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import sides
from crossfade.errors import BadInput
from crossfade.retrieval import Distance, Measured, Relevance, SameClass, measure
from crossfade.upgrade import Upgrade

BLENDS = (Blend(1, 1), Blend(0.85, 0.85), Blend(0.7, 0.7), Blend(0.5, 0.5))
"""Tried with every order."""
FALLING = ((1.2, 0.2), (1.0, 0.3), (0.5, 0.2))
VOLUMES = (1.0, 0.9, 0.8)
"""Tried at the first place of the best orders, rising to 1 at the last."""
REFINED = 4
"""So many orders are tried with those."""
DEFAULT_ORDERS = (*(name for name in ORDERS if name != "priority"), ALIGNMENT)
Progress = Callable[[int, int], None]
Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Candidate:
    """An order and a blend, and the curve they give."""

    order: str
    blend: Blend
    curve: Line | Curve

    @property
    def plain(self) -> bool:
        """Random replacement, which everything is compared with."""
        return self.order == "random" and self.blend.plain

    def areas(self, metrics: Sequence[str], budget: float = 1.0) -> NDArray[np.float64]:
        """Mean quality up to the budget, by metric; up to 1 that is M̃."""
        last = int(np.searchsorted(self.curve.shares, budget + 1e-9, side="right"))
        within = self.curve.shares[:last]
        means = np.array([self.curve.means(metric)[:last] for metric in metrics])
        return np.trapezoid(means, within) / within[-1] if last > 1 else means[:, 0]


@dataclass(frozen=True, eq=False)
class Simulation:
    """All candidates, the lines they are compared with, and what the orders and blends need."""

    candidates: list[Candidate]
    old: Measured
    new: Measured
    groups: Groups | None = None
    alignment: AlignmentError | None = None
    quiet: Quiet | None = None
    again: Callable[[Candidate], Curve] | None = None

    def curve(self, candidate: Candidate) -> Curve:
        """With the values of every query, which are kept for no candidate: that would be much."""
        if isinstance(candidate.curve, Curve):
            return candidate.curve
        if self.again is None:
            raise BadInput("this simulation keeps no values of queries")
        return self.again(candidate)


@dataclass(frozen=True, eq=False)
class _Scene:
    """Queries and a gallery that is backfilled in some order, as a curve needs them."""

    queries: Float
    lifted: Float
    mapped: Float
    before: Float
    filled: NDArray[np.bool_]
    places: dict[str, Index]
    relevance: Relevance
    metrics: tuple[str, ...]
    points: int
    distance: Distance
    quiet: Quiet | None

    def curves(self, orders: Sequence[str], how: Blend) -> dict[str, Curve]:
        """One call for all orders where what is stored does not depend on them."""
        if how.first == how.last and how.first_volume == how.last_volume:
            return self._run({name: self.places[name] for name in orders}, self._after(how, 0.0))
        found: dict[str, Curve] = {}
        for name in orders:
            place = self.places[name]
            found |= self._run({name: place}, self._after(how, place / len(place)))
        return found

    def _after(self, how: Blend, shares: NDArray[np.floating] | float) -> Float:
        after = stored(self.mapped, self.lifted, how, shares, self.quiet)
        # What is backfilled already stays as it is.
        return np.where(self.filled[:, None], self.before, after) if self.filled.any() else after

    def _run(self, places: dict[str, Index], after: Float) -> dict[str, Curve]:
        return curves(
            self.queries,
            self.before,
            after,
            places,
            self.relevance,
            self.metrics,
            points=self.points,
            distance=self.distance,
        )


def simulate(
    upgrade: Upgrade,
    held: Held,
    *,
    orders: Sequence[str] = DEFAULT_ORDERS,
    blends: Sequence[Blend | float] | None = None,
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    points: int = POINTS,
    distance: Distance = "cosine",
    start: State = LIFTED,
    budget: float = 1.0,
    quiet: Quiet | None = None,
    priority: NDArray[np.float64] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Curves of all `orders` (two joined by '+' are combined) and `blends`.

    Without `blends` they are searched for: `BLENDS` with every order, then those that fall along
    the order, with and without turning the volume down, with the orders that are best up to the
    `budget`. `start` says what the
    gallery holds now; items that are filled already come first in every order. `quiet` is
    learned from the queries unless it is given.
    """
    if held.relevance is None:
        raise BadInput(
            "a plan is made on labels or qrels", where=held.name, step="give --labels or --qrels"
        )
    if held.query_old is None:
        raise BadInput(
            "the old model has embedded no queries, and a plan is compared with today's search",
            where=held.name,
            step="make the pairs with --embed-old",
        )
    gallery = sides(upgrade, held.gallery_old, held.gallery_new)
    same = held.query_old is held.gallery_old
    queries = gallery if same else sides(upgrade, held.query_old, held.query_new)
    lifted, mapped = gallery["F(old)"], gallery["B(new)"]
    before, filled = held_before(upgrade, held.gallery_old, lifted, mapped, start)
    labels = held.relevance.gallery_labels if isinstance(held.relevance, SameClass) else None
    items = Items(np.arange(held.gallery), held.gallery_old, lifted, labels, priority)
    places, groups, alignment = places_in(orders, items, mapped, seed)
    given = None if blends is None else [_as_blend(b) for b in blends]
    if quiet is None and (given is None or not all(b.loud for b in given)):
        quiet = Quiet.learn(queries["B(new)"], seed)
        if given is not None and not quiet.enough:
            raise BadInput(
                f"queries use every direction (at least {quiet.loudness:.2f} of their length), and "
                "scores cannot be turned down",
                where=held.name,
                step="leave out --volume",
            )
    scene = _Scene(
        queries=queries["B(new)"],
        lifted=lifted,
        mapped=mapped,
        before=before,
        filled=filled,
        places={name: filled_first(place, filled) for name, place in places.items()},
        relevance=held.relevance,
        metrics=tuple(metrics),
        points=points,
        distance=distance,
        quiet=quiet,
    )
    found = _search(scene, orders, given, budget, progress)
    lines = [
        measure(queries[side], gallery[side], held.relevance, metrics, distance=distance)
        for side in ("old", "new")
    ]
    return Simulation(
        found,
        lines[0],
        lines[1],
        groups,
        alignment,
        quiet,
        again=lambda c: scene.curves([c.order], c.blend)[c.order],
    )


def _search(
    scene: _Scene,
    orders: Sequence[str],
    given: list[Blend] | None,
    budget: float,
    progress: Progress | None,
) -> list[Candidate]:
    found: list[Candidate] = []
    steps = len(BLENDS) + 1 if given is None else len(given)

    def tried(names: Sequence[str], how: Blend) -> None:
        by_order = scene.curves(names, how)
        found.extend(Candidate(name, how, curve.line()) for name, curve in by_order.items())

    for done, how in enumerate(BLENDS if given is None else given, 1):
        tried(orders, how)
        if progress is not None:
            progress(done, steps)
    if given is None:
        best: dict[str, Candidate] = {}
        for candidate in sorted(found, key=lambda c: -c.areas(scene.metrics, budget).mean()):
            best.setdefault(candidate.order, candidate)
        volumes = VOLUMES if scene.quiet is not None and scene.quiet.enough else (1.0,)
        for name, constant in list(best.items())[:REFINED]:
            for first, last in (*FALLING, (constant.blend.first, constant.blend.last)):
                for volume in volumes:
                    how = Blend(first, last, volume)
                    if how not in BLENDS:
                        tried([name], how)
        if progress is not None:
            progress(steps, steps)
    return found


def _as_blend(given: Blend | float) -> Blend:
    return given if isinstance(given, Blend) else Blend(given, given)
