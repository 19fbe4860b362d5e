"""Every way of asking, order and blend on held-out pairs: what backfilling would have bought.

Nothing is assumed to help. The held-out rows play the gallery: they start as F(old) and turn into
the blend of B(new) and F(old) in each order, with B(new) as queries, as in the paper's protocol.
First all orders are tried with every constant blend, then the best of them with blends and volumes
that change along the order. The same gallery is asked with both models' queries, as two and as one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import DEFAULT, Asked, Asking, Both, Weights, blended
from crossfade.backfill.blend import Blend, blend, stored
from crossfade.backfill.curve import POINTS, Curve, Line, check_metrics, curves
from crossfade.backfill.items import Groups, Index, Items
from crossfade.backfill.orders import ORDERS, Order
from crossfade.backfill.places import filled_first, places_in
from crossfade.backfill.start import LIFTED, State, held_before
from crossfade.backfill.volume import Quiet
from crossfade.backfill.weights import BLEND_GRID, Ruler
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import sides
from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.retrieval import Measured, Relevance, SameClass, measure
from crossfade.retrieval.ranking import comparable
from crossfade.solvers.device import name_device
from crossfade.spaces import fit_dim
from crossfade.upgrade import Upgrade

BLENDS = (Blend(1, 1), Blend(0.85, 0.85), Blend(0.7, 0.7), Blend(0.5, 0.5))
"""Tried with every order."""
FALLING = ((1.2, 0.2), (1.0, 0.3), (0.5, 0.2))
VOLUMES = (1.0, 0.9, 0.8)
"""Tried at the first place of the best orders, rising to 1 at the last."""
REFINED = 4
"""So many orders are tried with those."""
ROUND_OFF = 1e-9
"""Points of percent that are none."""
SURE = 1.96
"""Standard errors to either side of a mean within which it lies with 95 % confidence."""
LIFTS = (0.0, 0.5, 0.75)
"""Shares of F(old) in what rows store before they are filled, tried beside F(old) itself; the rest
is the old vector as it is, and 0 is a gallery that is not lifted."""
ASKING: tuple[Asking, ...] = ("new", "both", "blend")
"""The ways that are simulated; asking `old` is old/old, whatever is filled."""
DEFAULT_ORDERS = tuple(name for name, order in ORDERS.items() if not order.by_priority)
Progress = Callable[[int, int], None]
Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way of asking, an order and a blend, and the curve they give."""

    order: str
    blend: Blend
    curve: Line | Curve
    asking: Asking = "new"
    weights: Weights = DEFAULT
    lift: float = 1.0
    """The share of F(old) in what rows store before they are filled."""

    @property
    def plain(self) -> bool:
        """Random replacement, which everything asked in the same way is compared with."""
        usual = self.weights == DEFAULT and self.lift == 1
        return self.order == "random" and self.blend.plain and usual

    def areas(
        self, metrics: Sequence[str], budget: float = 1.0, *, half: bool = False
    ) -> NDArray[np.float64]:
        """Mean quality up to the budget, by metric, of all queries or the first `half` of them;
        up to 1 that is M̃."""
        last = int(np.searchsorted(self.curve.shares, budget + 1e-9, side="right"))
        within = self.curve.shares[:last]
        of = self.curve.half if half else self.curve.means
        means = np.array([of(metric)[:last] for metric in metrics])
        return np.trapezoid(means, within) / within[-1] if last > 1 else means[:, 0]

    def seems_level(self, today: Mapping[str, float], last: int) -> bool:
        """Whether, as far as its line tells, none of the first `last` points is below today's
        level in any of these metrics with 95 % confidence."""
        line = self.curve
        if not isinstance(line, Line):
            return True
        return all(
            bool((line.values[m] + SURE * line.errors[m] >= level - ROUND_OFF)[:last].all())
            for m, level in today.items()
        )


@dataclass(frozen=True, eq=False)
class Simulation:
    """All candidates, the lines they are compared with, and what the orders and blends need."""

    candidates: list[Candidate]
    old: Measured | None
    """None where the old model has embedded no queries."""
    new: Measured
    groups: Groups | None = None
    learned: Mapping[str, Order] = field(default_factory=dict)
    """Those orders that learn, by name."""
    quiet: Quiet | None = None
    again: Callable[[Candidate], Curve] | None = None
    lifts: tuple[float, ...] = ()
    """What rows may store before they are filled, in place of F(old)."""

    def lifted(self, candidate: Candidate, lift: float) -> Candidate:
        """The same with rows that store another mixture before they are filled."""
        if self.again is None:
            raise BadInput("this simulation keeps no values of queries")
        other = replace(candidate, lift=lift)
        return replace(other, curve=self.again(other))

    def curve(self, candidate: Candidate) -> Curve:
        """With the values of every query, which are kept for no candidate: that would be much."""
        if isinstance(candidate.curve, Curve):
            return candidate.curve
        if self.again is None:
            raise BadInput("this simulation keeps no values of queries")
        return self.again(candidate)

    def alone(self, candidate: Candidate) -> Curve:
        """The same rows in the same order, asked with new queries alone: what `finish` leaves."""
        if candidate.asking == "new":
            return self.curve(candidate)
        if self.again is None:
            raise BadInput("this simulation keeps no values of queries")
        return self.again(replace(candidate, asking="new"))


@dataclass(frozen=True, eq=False)
class _Scene:
    """Queries and a gallery that is backfilled in some order, as a curve needs them."""

    queries: Float
    old_queries: Float | None
    both: Both | None
    gallery_old: Float
    lifted: Float
    placed: Float
    """Old vectors as they are, in the shared space."""
    mapped: Float
    before: Float
    raw: NDArray[np.bool_]
    """Items that are not lifted."""
    filled: NDArray[np.bool_]
    places: dict[str, Index]
    relevance: Relevance
    metrics: tuple[str, ...]
    points: int
    distance: Distance
    quiet: Quiet | None
    device: str

    def curves(
        self,
        orders: Sequence[str],
        how: Blend,
        asking: Asking = "new",
        weights: Weights = DEFAULT,
        lift: float = 1.0,
    ) -> dict[str, Curve]:
        """One call for all orders where what is stored does not depend on them."""
        if asking == "blend":
            return dict.fromkeys(orders, self._level(weights))
        if how.first == how.last and how.first_volume == how.last_volume:
            places = {name: self.places[name] for name in orders}
            return self._run(places, self._after(how, 0.0), asking, weights, lift)
        found: dict[str, Curve] = {}
        for name in orders:
            place = self.places[name]
            after = self._after(how, place / len(place))
            found |= self._run({name: place}, after, asking, weights, lift)
        return found

    def _before(self, lift: float) -> Float:
        """What rows store now; lifted ones a mixture of F(old) and the old vector as it is."""
        if lift == 1:
            return self.before
        kept = (self.raw | self.filled)[:, None]
        return np.where(kept, self.before, blend(self.lifted, self.placed, lift))

    def _after(self, how: Blend, shares: NDArray[np.floating] | float) -> Float:
        after = stored(self.mapped, self.lifted, how, shares, self.quiet)
        # What is backfilled already stays as it is.
        return np.where(self.filled[:, None], self.before, after) if self.filled.any() else after

    def _run(
        self,
        places: dict[str, Index],
        after: Float,
        asking: Asking,
        weights: Weights,
        lift: float,
    ) -> dict[str, Curve]:
        given: dict[str, Any] = {
            "points": self.points,
            "distance": self.distance,
            "device": self.device,
        }
        before = self._before(lift)
        sides = self.queries, before, after
        if asking == "both" and self.both is not None:
            both = self.both if lift == 1 else replace(self.both, gallery_lifted=before)
            now, then = self._states(both, after, weights)
            sides = now.queries, now.items, then.items
            given |= {"distance": "dot", "after_queries": then.queries}
        return curves(*sides, places, self.relevance, self.metrics, **given)

    def _states(self, both: Both, after: Float, weights: Weights) -> tuple[Asked, Asked]:
        """Scores of all items as they are, and as they are once they are filled."""
        then = both.as_filled(after, weights)
        if not self.filled.any() and not self.raw.any():
            return both.as_lifted(weights), then
        if not self.filled.any() and self.raw.all():
            return both.as_old(weights), then
        # Each item has values in the columns of its own state, and the queries ask all.
        lifted = ~self.raw & ~self.filled
        states = [
            (both.as_old(weights), self.raw),
            (both.as_lifted(weights), lifted),
            (then, self.filled),
        ]
        asked = np.concatenate([one.queries for one, _ in states], axis=1)
        now = np.concatenate([one.items * rows[:, None] for one, rows in states], axis=1)
        blank = np.zeros((len(now), now.shape[1] - then.items.shape[1]), np.float32)
        return Asked(asked, now), Asked(asked, np.concatenate([blank, then.items], axis=1))

    def _level(self, weights: Weights) -> Curve:
        """A curve that does not move: a blended query asks the old vectors, whatever is filled."""
        asked = self._blend(weights)
        sides = asked.queries, asked.items
        found = _measured(sides, self.relevance, self.metrics, "dot", self.device)
        shares = np.arange(self.points) / (self.points - 1)
        values = {m: np.tile(v, (self.points, 1)) for m, v in found.values.items()}
        return Curve(shares, values)

    def _blend(self, weights: Weights) -> Asked:
        """One vector of both models for each query, and the old vectors it asks."""
        if self.old_queries is None:
            raise BadInput("there are no old queries to blend with")
        on_old = fit_dim(self.queries, self.old_queries.shape[1])
        one = blended(on_old, self.old_queries, weights.blend)
        return Asked(*comparable(one, self.gallery_old, self.distance))

    def learn_weights(self, asking: Sequence[Asking], seed: int) -> Weights:
        """What each voice should count, as far as these queries tell."""
        ruler = Ruler(self.relevance, self.metrics, seed, device=self.device)
        out = DEFAULT
        if "both" in asking and self.both is not None:
            out = ruler.of_both(self.both, self._after(Blend(), 0.0))
        if "blend" in asking:
            out = ruler.best(out, BLEND_GRID, self._blend)
        return out


def simulate(
    upgrade: Upgrade,
    held: Held,
    *,
    orders: Sequence[str] = DEFAULT_ORDERS,
    blends: Sequence[Blend | float] | None = None,
    metrics: Sequence[str] = ("cmc@1", "mAP"),
    asking: Sequence[Asking] | None = None,
    points: int = POINTS,
    distance: Distance = "cosine",
    start: State = LIFTED,
    budget: float = 1.0,
    lifts: Sequence[float] | None = None,
    quiet: Quiet | None = None,
    priority: NDArray[np.float64] | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Simulation:
    """Curves of all `orders` (two joined by '+' are combined) and `blends`, asked in every way.

    `asking` names the ways, by default all; without the old model there is `new` alone. Both
    models' queries are tried with all orders and with what the new model says as it is: a blend of
    what is stored would hold the old model twice. What each voice counts is chosen on half of the
    queries and kept where the other half confirms it (`crossfade.backfill.weights`). Where all of
    that is below today's search at first or on the way, rows that are not filled are tried too as
    they are asked today.

    Without `blends` they are searched for: `BLENDS` with every order, then those that fall along
    the order, with and without turning the volume down, with the orders that are best up to the
    `budget`. `start` says what the gallery holds now; items that are filled already come first in
    every order. `lifts` are the shares of F(old) that rows may store before they are filled, by
    default `LIFTS` and F(old) itself; they are tried with what is chosen, and only in a gallery
    of which nothing is old or filled yet. `quiet` is learned from the queries unless it is given.
    Curves and measurements run on `device`: cpu, cuda, cuda:N or auto.
    """
    device = name_device(device)
    if held.relevance is None:
        raise BadInput(
            "a plan is made on labels or qrels", where=held.name, step="give --labels or --qrels"
        )
    check_metrics(metrics)
    asking = _possible(asking, held)
    gallery = sides(upgrade, held.gallery_old, held.gallery_new)
    same = held.query_old is held.gallery_old
    queries = gallery if same else sides(upgrade, held.query_old, held.query_new)
    lifted, mapped = gallery["F(old)"], gallery["B(new)"]
    before, raw, filled = held_before(upgrade, held.gallery_old, lifted, mapped, start)
    labels = held.relevance.gallery_labels if isinstance(held.relevance, SameClass) else None
    items = Items(np.arange(held.gallery), held.gallery_old, lifted, labels, priority)
    places, groups, learned = places_in(orders, items, mapped, seed)
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
    mixtures = _mixtures(upgrade, lifts, untouched=not raw.any() and not filled.any())
    scene = _Scene(
        queries=queries["B(new)"],
        old_queries=queries.get("old"),
        both=Both(queries["old"], queries["B(new)"], gallery["old"], lifted, distance, seed)
        if "both" in asking
        else None,
        gallery_old=gallery["old"],
        lifted=lifted,
        placed=upgrade.in_shared_space(held.gallery_old) if mixtures else lifted,
        mapped=mapped,
        before=before,
        raw=raw,
        filled=filled,
        places={name: filled_first(place, filled) for name, place in places.items()},
        relevance=held.relevance,
        metrics=tuple(metrics),
        points=points,
        distance=distance,
        quiet=quiet,
        device=device,
    )
    lines = {
        side: _measured((queries[side], gallery[side]), held.relevance, metrics, distance, device)
        for side in ("old", "new")
        if side in queries
    }
    weights = list(dict.fromkeys([DEFAULT, scene.learn_weights(asking, seed)]))
    found = _search(scene, orders, given, asking, weights, budget, lines.get("old"), progress)
    return Simulation(
        found,
        lines.get("old"),
        lines["new"],
        groups,
        learned,
        quiet,
        again=lambda c: scene.curves([c.order], c.blend, c.asking, c.weights, c.lift)[c.order],
        lifts=mixtures,
    )


def _mixtures(
    upgrade: Upgrade, lifts: Sequence[float] | None, *, untouched: bool
) -> tuple[float, ...]:
    """What may be tried in place of F(old)."""
    for lift in lifts or ():
        if not 0 <= lift <= 1:
            raise BadInput(f"a lift of {lift:g}", step="use a share of F(old) from 0 to 1")
    keeps_lengths = "none" in (upgrade.config_.old.normalization, upgrade.config_.new.normalization)
    others = tuple(lift for lift in dict.fromkeys(LIFTS if lifts is None else lifts) if lift != 1)
    if lifts is not None and others and (keeps_lengths or not untouched):
        raise BadInput(
            "a mixture makes unit vectors, and this upgrade keeps lengths"
            if keeps_lengths
            else "rows of this gallery store something already",
            step="leave out --lift",
        )
    return () if keeps_lengths or not untouched else others


def _possible(asking: Sequence[Asking] | None, held: Held) -> Sequence[Asking]:
    """The ways that were named, or all there are for these queries."""
    if asking is None:
        return ASKING if held.query_old is not None else ("new",)
    unknown = [way for way in asking if way not in ASKING]
    if unknown or not asking:
        raise BadInput(
            f"a plan does not ask {unknown[0]!r}" if unknown else "no way of asking is named",
            step=f"use {', '.join(ASKING)}",
        )
    if held.query_old is None and set(asking) != {"new"}:
        raise BadInput(
            "the old model has embedded no queries, and only new ones can be asked",
            where=held.name,
            step="make the pairs with --embed-old, or plan with --ask new",
        )
    return asking


def _measured(
    sides: tuple[Float, Float],
    relevance: Relevance,
    metrics: Sequence[str],
    distance: Distance,
    device: str,
) -> Measured:
    # A k beyond the gallery is the caller's to speak of, once for all curves.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return measure(*sides, relevance, metrics, distance=distance, device=device)


def _search(
    scene: _Scene,
    orders: Sequence[str],
    given: list[Blend] | None,
    asking: Sequence[Asking],
    weights: Sequence[Weights],
    budget: float,
    today: Measured | None,
    progress: Progress | None,
) -> list[Candidate]:
    found: list[Candidate] = []
    level = None if today is None else today.values
    alone = (len(BLENDS) + 1 if given is None else len(given)) if "new" in asking else 0
    steps = alone + (len(asking) - ("new" in asking))

    def tried(names: Sequence[str], how: Blend, way: Asking = "new", by: Weights = DEFAULT) -> None:
        for name, curve in scene.curves(names, how, way, by).items():
            found.append(Candidate(name, how, curve.line(level), way, by))

    def begins_level(candidate: Candidate) -> bool:
        means = {} if today is None else {m: today.mean(m) for m in scene.metrics}
        first = all(candidate.curve.means(m)[0] >= x - ROUND_OFF for m, x in means.items())
        return first and candidate.seems_level(means, scene.points)

    if "new" in asking:
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
                progress(alone, steps)
    for done, way in enumerate((way for way in asking if way != "new"), alone + 1):
        # A blended query asks old vectors: what is filled, and when, is all the same to it.
        stores = [Blend()] if given is None or way == "blend" else given
        for how in stores:
            for by in weights:
                tried(orders if way == "both" else orders[:1], how, way, by)
        # Where something is nowhere below today, nothing is needed that begins there.
        if way == "both" and not any(c.asking == way and begins_level(c) for c in found):
            for how in stores:
                for by in dict.fromkeys(_as_today(by) for by in weights):
                    if by not in weights:
                        tried(orders, how, way, by)
        if progress is not None:
            progress(done, steps)
    return found


def _as_today(weights: Weights) -> Weights:
    """With these, both models asked begin as today's search, whatever the maps are worth."""
    return replace(weights, old_backward=0.0, lifted_backward=0.0, lifted_forward=0.0)


def _as_blend(given: Blend | float) -> Blend:
    return given if isinstance(given, Blend) else Blend(given, given)
