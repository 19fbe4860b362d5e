"""A plan's curves with every row of a store as a distractor, streamed once.

What to do is chosen on the held rows, which both models have embedded; how it goes is simulated
once more on all rows, for small galleries flatter. Old vectors of all rows are there, new ones of
the held rows alone. So what another row will store once it is filled is made up: as near to its own
F(old) as that of some held row is to its own, and off in the direction in which that one is. It is
right in the mean over many rows, which is what distractors are, and of no single one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import Both, blended
from crossfade.backfill.blend import blend, stored
from crossfade.backfill.choose import Choice, Costs, choose
from crossfade.backfill.curve import Curve
from crossfade.backfill.items import Items
from crossfade.backfill.orders import order_named
from crossfade.backfill.plan import Made, Plan
from crossfade.backfill.record import describe
from crossfade.backfill.simulate import Candidate, Simulation
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import sides
from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.lookups.whole_store import ROUND_OFF, Wanted, stream_rows
from crossfade.retrieval import Measured, Metric
from crossfade.retrieval.ranking import Ranked, comparable
from crossfade.spaces import fit_dim
from crossfade.stores import Store
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]
Index = NDArray[np.int64]
Progress = Callable[[int, int], None]


def plan_on_store(
    upgrade: Upgrade,
    held: Held,
    store: Store,
    made: Plan,
    *,
    target: float | None = None,
    today: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """`made` (what `plan` found on `held`) with curves on every row of the store.

    Order, blend, weights and what rows store stay; how to ask, where to stop and what it promises
    are judged anew. `held` comes from `read_held`: its lookups name the rows they want by id.
    """
    if made.made is None:
        raise BadInput("was read from a folder", where="the plan", step="make it with plan()")
    record, choice = made.record, made.made.choice
    if record.start != "lifted":
        raise BadInput(
            f"on a whole store a plan starts from lifted rows, not from {record.start} ones",
            where=store.name,
            step="leave out --start, or --store",
        )
    wanted = Wanted.of(upgrade, held, store)
    scene = _Scene(upgrade, held, made, wanted, store.distance, seed)
    total, rows = store.describe().rows, 0
    for ids, old in stream_rows(store, held.queries):
        scene.add(ids, old)
        rows += len(ids)
        if progress is not None:
            progress(min(rows, total), total)
    found = scene.simulation()
    again = choose(
        found, record.optimize, budget=record.budget, target=target, today=today, seed=seed
    )
    notes = [
        *record.warnings,
        f"on all {rows:,} rows of the store: what those store that are not held once they are "
        "filled is made up after held ones",
    ]
    lost = int((~wanted.there).sum())
    if lost:
        notes.append(f"{lost:,} lookups are left out: their rows have gone or changed since")
    if store.distance != "cosine":
        notes.append(f"order and blend were chosen by cosine, and the store has {store.distance}")
    there = describe(
        upgrade,
        found,
        again,
        _costs(record.costs["full"]),
        data=record.data,
        gallery=rows,
        optimize=record.optimize,
        budget=record.budget,
        warnings=notes,
        held_out=record.held_out,
        classes=record.classes,
    )
    on_held = {name: getattr(record, name) for name in ("gallery", "asking", "quality", "curve")}
    kept = {"store": store.name, "sample": on_held, "lifts": record.lifts}
    return Plan.of(
        there.model_copy(update=kept | {"candidates": record.candidates}),
        Made(found, replace(again, lifts=choice.lifts)),
    )


def _costs(full: dict[str, float | int | None]) -> Costs:
    items = int(full["items"] or 0)
    cost, seconds = full["cost"], full["seconds"]
    return Costs(
        items,
        None if cost is None or not items else 1000 * cost / items,
        None if not seconds else items / seconds,
    )


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Some rows of a store: as they are, lifted, and as they will be once they are filled."""

    old: Float
    placed: Float
    lifted: Float
    mapped: Float


class _Scene:
    """Lookups on a store, in every way of asking that was chosen among."""

    def __init__(
        self,
        upgrade: Upgrade,
        held: Held,
        made: Plan,
        wanted: Wanted,
        distance: Distance,
        seed: int,
    ) -> None:
        self.upgrade, self.held, self.plan, self.wanted = upgrade, held, made, wanted
        self.distance, self.rng = distance, np.random.default_rng(seed)
        self.queries = sides(upgrade, held.query_old, held.query_new)
        self.rows = _Vectors(
            upgrade.as_stored(held.gallery_old),
            upgrade.in_shared_space(held.gallery_old),
            upgrade.forward(held.gallery_old),
            upgrade.backward(held.gallery_new),
        )
        if held.gallery_ids is None or held.relevance is None or made.made is None:
            raise BadInput("has no lookups, whose rows could be found in a store", where=held.name)
        self.place_of = {key: at for at, key in enumerate(held.gallery_ids.tolist())}
        items = held.relevance.block(0, held.queries).items
        candidates = _candidates(made.made.choice).values()
        self.places = {
            order: _Places(made, order, held, self.rows.lifted)
            for order in dict.fromkeys(c.order for c in candidates)
        }
        mine = self._cut(items)
        turns = self._shares(held.gallery_old, self.rows.lifted)
        self.ways = [_Way(self, c, mine, turns[c.order][items]) for c in candidates]
        self.lines = {}
        for name, (asked, kind) in _LINES.items():
            if asked in self.queries:
                q, g = comparable(self.queries[asked], getattr(mine, kind), distance)
                self.lines[name] = _Line(q, g, held.queries)

    @cached_property
    def both(self) -> Both:
        return Both(
            self.queries["old"],
            self.queries["B(new)"],
            self.rows.old,
            self.rows.lifted,
            distance=self.distance,
        )

    def add(self, ids: list[Any], old: Float) -> None:
        """Some more rows of the store."""
        some = self._made_up(ids, old)
        shares = self._shares(old, some.lifted)
        own = self.wanted.places(ids)
        for way in self.ways:
            way.count(some, shares[way.candidate.order], own)
        for name, (_, kind) in _LINES.items():
            if name in self.lines:
                _, g = comparable(some.old[:1], getattr(some, kind), self.distance)
                self.lines[name].count(g, own)

    def _shares(self, old: Float, lifted: Float) -> dict[str, NDArray[np.float64]]:
        """Where rows stand in each order."""
        return {name: place.shares(old, lifted, self.rng) for name, place in self.places.items()}

    def _made_up(self, ids: list[Any], old: Float) -> _Vectors:
        lifted = self.upgrade.forward(old)
        known = np.array([self.place_of.get(key, -1) for key in ids])
        donors = self.rng.integers(len(self.rows.mapped), size=len(ids))
        mapped = after(lifted, self.rows.lifted[donors], self.rows.mapped[donors])
        mapped[known >= 0] = self.rows.mapped[known[known >= 0]]
        return _Vectors(
            self.upgrade.as_stored(old), self.upgrade.in_shared_space(old), lifted, mapped
        )

    def _cut(self, items: Index) -> _Vectors:
        rows = self.rows
        return _Vectors(rows.old[items], rows.placed[items], rows.lifted[items], rows.mapped[items])

    def simulation(self) -> Simulation:
        """What was counted, as curves that a plan is chosen from."""
        before = self.plan.made.simulation if self.plan.made is not None else None
        metrics = self.plan.record.optimize
        counts = self.wanted.there.astype(np.int64)
        shares = np.array(self.plan.record.curve["share"])

        def values(ahead: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
            ranked = Ranked(0, counts, ahead[self.wanted.there] + 1, None)
            return {metric: Metric.named(metric)(ranked) for metric in metrics}

        curves: dict[tuple[Any, ...], Curve] = {}
        candidates = []
        for way in self.ways:
            points = [values(ahead) for ahead in way.ahead(len(shares))]
            curve = Curve(shares, {m: np.stack([p[m] for p in points]) for m in metrics})
            curves[_key(way.candidate)] = curve
            candidates.append(replace(way.candidate, curve=curve.line()))
        lines = {name: Measured(values(line.ahead)) for name, line in self.lines.items()}
        chosen = [c for c in candidates if _key(c) in _chosen_keys(self.plan)]
        return Simulation(
            chosen,
            lines.get("old/old"),
            lines["new/new"],
            None if before is None else before.groups,
            {} if before is None else before.learned,
            None if before is None else before.quiet,
            again=lambda c: curves[_key(c)],
        )


_LINES = {"old/old": ("old", "old"), "new/new": ("B(new)", "mapped")}
"""The queries, and what of the rows they ask."""


def after(lifted: Float, donors_lifted: Float, donors_mapped: Float) -> Float:
    """Unit vectors as near to `lifted` as each donor's B(new) is to its own F(old), off in the
    donor's direction.

    >>> rng = np.random.default_rng(0)
    >>> x, f, b = (y / np.linalg.norm(y, axis=1)[:, None] for y in rng.normal(size=(3, 5, 8)))
    >>> made = after(x, f, b)
    >>> bool(np.allclose(np.vecdot(made, x), np.vecdot(f, b), atol=1e-6))
    True
    >>> bool(np.allclose(after(f, f, b), b, atol=1e-6))
    True
    """
    x, f, b = (_unit(y) for y in (lifted, donors_lifted, donors_mapped))
    near = np.vecdot(f, b)[:, None]
    off = b - near * f
    off = _unit(off - np.vecdot(off, x)[:, None] * x)
    return np.asarray(near * x + np.sqrt(np.maximum(0.0, 1 - near**2)) * off, np.float32)


def _unit(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30))


def _candidates(choice: Choice) -> dict[tuple[Any, ...], Candidate]:
    """The best of every way, with what rows store by the plan, and each asked with new alone."""
    out: dict[tuple[Any, ...], Candidate] = {}
    for candidate in choice.by_way.values():
        some = replace(candidate, lift=choice.best.lift)
        for one in (some, replace(some, asking="new")):
            out.setdefault(_key(one), one)
    return out


def _chosen_keys(plan: Plan) -> set[tuple[Any, ...]]:
    if plan.made is None:
        return set()
    choice = plan.made.choice
    return {_key(replace(c, lift=choice.best.lift)) for c in choice.by_way.values()}


def _key(candidate: Candidate) -> tuple[Any, ...]:
    weights = str(candidate.weights) if candidate.asking != "new" else ""
    return candidate.asking, candidate.order, candidate.blend, candidate.lift, weights


class _Places:
    """Where a row stands in an order, as a share from 0 to 1: among the held rows."""

    def __init__(self, made: Plan, order: str, held: Held, lifted: Float) -> None:
        self.plan, self.order = made, order
        self.known: dict[str, NDArray[np.float64]] = {}
        self._learned = made.learned
        if "priority" in self.order.split("+"):
            raise BadInput(
                "rows of a store have no priorities here", step="leave out --store, or --priority"
            )
        for name in self._named:
            self.known[name] = np.sort(-self._urgency(name, held.gallery_old, lifted))

    @property
    def _named(self) -> list[str]:
        return [name for name in self.order.split("+") if name != "random"]

    def shares(self, old: Float, lifted: Float, rng: np.random.Generator) -> NDArray[np.float64]:
        """For these rows; in a random order by chance."""
        found = []
        for name in self._named:
            known = self.known[name]
            at = np.searchsorted(known, -self._urgency(name, old, lifted))
            # Between two of the held rows nothing tells where.
            found.append((at + rng.random(len(at))) / (len(known) + 1))
        return np.mean(found, axis=0) if found else rng.random(len(old))

    def _urgency(self, name: str, old: Float, lifted: Float) -> NDArray[np.float64]:
        items = Items(np.arange(len(old)), old, lifted)
        groups = self.plan.groups
        if groups is not None and groups.labelled:
            groups = groups.by_nearness()
        return order_named(name, self._learned)(items, groups)


class _Way:
    """One way of asking: who is ahead of the wanted row before and after it, and they, are filled.

    Counted by the point of the curve at which the other row is filled.
    """

    def __init__(
        self, scene: _Scene, candidate: Candidate, mine: _Vectors, shares: NDArray[np.float64]
    ) -> None:
        self.scene, self.candidate = scene, candidate
        self.points = len(scene.plan.record.curve["share"])
        self.turn = self._turns(shares)
        self.queries = self._asked()
        own = self._items(mine, shares)
        self.bars = [np.vecdot(q, g) for q, g in zip(self.queries, own, strict=True)]
        lengths = [np.linalg.norm(q, axis=1) for q in self.queries]
        self.slack = [
            ROUND_OFF * length * np.linalg.norm(g, axis=1)
            for length, g in zip(lengths, own, strict=True)
        ]
        rows = len(self.turn)
        # By whether the wanted row is filled, and whether the other is.
        self.counted = np.zeros((2, 2, rows * (self.points + 1)), np.int64)

    def _turns(self, shares: NDArray[np.float64]) -> Index:
        return (
            np.minimum(np.floor(shares * (self.points - 1)), self.points - 2).astype(np.int64) + 1
        )

    def _asked(self) -> tuple[Float, Float]:
        scene, how = self.scene, self.candidate
        if how.asking == "both":
            full = stored(scene.rows.mapped, scene.rows.lifted, how.blend, 0.0, scene.plan.quiet)
            both, weights = self._both, how.weights
            return both.as_lifted(weights).queries, both.as_filled(full, weights).queries
        if how.asking == "blend":
            on_old = fit_dim(scene.queries["B(new)"], scene.queries["old"].shape[1])
            one = blended(on_old, scene.queries["old"], how.weights.blend)
            q, _ = comparable(one, scene.rows.old[:1], scene.distance)
            return q, q
        q, _ = comparable(scene.queries["B(new)"], scene.rows.lifted[:1], scene.distance)
        return q, q

    @cached_property
    def _both(self) -> Both:
        scene, lift = self.scene, self.candidate.lift
        if lift == 1:
            return scene.both
        mixed = blend(scene.rows.lifted, scene.rows.placed, lift)
        return replace(scene.both, gallery_lifted=mixed)

    def _items(self, some: _Vectors, shares: NDArray[np.float64]) -> tuple[Float, Float]:
        """Rows before they are filled and after, as the queries ask for them."""
        scene, how = self.scene, self.candidate
        if how.asking == "blend":
            _, g = comparable(some.old[:1], some.old, scene.distance)
            return g, g
        before = some.lifted if how.lift == 1 else blend(some.lifted, some.placed, how.lift)
        later = stored(some.mapped, some.lifted, how.blend, shares, scene.plan.quiet)
        if how.asking == "both":
            both, weights = self._both, how.weights
            return (
                both.rows_lifted(some.old, before, weights),
                both.rows_filled(some.old, later, weights),
            )
        return (
            comparable(before[:1], before, scene.distance)[1],
            comparable(later[:1], later, scene.distance)[1],
        )

    def count(self, some: _Vectors, shares: NDArray[np.float64], own: Index) -> None:
        """Rows of the store; `own` is where each lookup's wanted row is among them, or −1."""
        turn, items = self._turns(shares), self._items(some, shares)
        asking = np.flatnonzero(own >= 0)
        for then in (0, 1):
            scores = self.queries[then] @ items[then].T
            scores[asking, own[asking]] = -np.inf
            for now in (0, 1):
                ahead = scores >= (self.bars[now] - self.slack[now])[:, None]
                query, row = np.nonzero(ahead)
                self.counted[now, then] += np.bincount(
                    query * (self.points + 1) + turn[row], minlength=self.counted.shape[2]
                )

    def ahead(self, points: int) -> list[Index]:
        """How many rows are ahead of each lookup's, at every point of the curve."""
        by_turn = self.counted.reshape(2, 2, len(self.turn), self.points + 1)
        filled = by_turn.cumsum(axis=3)
        out = []
        for point in range(points):
            left = filled[:, 0, :, -1] - filled[:, 0, :, point]
            both = left + filled[:, 1, :, point]
            out.append(np.where(point >= self.turn, both[1], both[0]))
        return out


class _Line:
    """Who is ahead of the wanted row where nothing changes along the way."""

    def __init__(self, queries: Float, own: Float, rows: int) -> None:
        self.queries = queries
        slack = np.linalg.norm(queries, axis=1) * np.linalg.norm(own, axis=1)
        self.bar = np.vecdot(queries, own) - ROUND_OFF * slack
        self.ahead = np.zeros(rows, np.int64)

    def count(self, items: Float, own: Index) -> None:
        scores = self.queries @ items.T
        asking = np.flatnonzero(own >= 0)
        scores[asking, own[asking]] = -np.inf
        self.ahead += (scores >= self.bar[:, None]).sum(axis=1)
