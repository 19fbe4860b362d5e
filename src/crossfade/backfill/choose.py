"""The plan: which order, which blend, where to stop and what it costs, chosen by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import AskedFrom, Asking
from crossfade.backfill.curve import Curve
from crossfade.backfill.simulate import Candidate, Simulation
from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.errors import BadInput

RESAMPLES = 1000
AS_GOOD = 0.5
"""Points by which new queries alone may be worse, with 95 % confidence, and still be preferred."""
Float = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What re-embedding takes; unknown where the user did not say."""

    items: int
    per_thousand: float | None = None
    per_second: float | None = None

    def record(self, share: float) -> dict[str, float | int | None]:
        """
        >>> Costs(10_000, per_thousand=0.5, per_second=100).record(0.2)
        {'items': 2000, 'cost': 1.0, 'seconds': 20.0}
        """
        items = math.floor(share * self.items)
        return {
            "items": items,
            "cost": None if self.per_thousand is None else items / 1000 * self.per_thousand,
            "seconds": None if self.per_second is None else items / self.per_second,
        }


@dataclass(frozen=True)
class Lowest:
    """The worst moment of a curve: where it is, and how far from today's index, in points.

    How far is not known where the old model has embedded no queries.
    """

    share: float
    quality: float
    against_today: float | None
    ci95: tuple[float, float] | None

    @property
    def below(self) -> bool:
        """Whether it is known to be below today's index, with 95 % confidence."""
        return self.ci95 is not None and self.ci95[1] < 0


@dataclass(frozen=True)
class Alone:
    """New queries by themselves on the same rows: what is left once the old model has gone."""

    reaches: float | None
    """The share from which on they are no longer below old/old."""
    at_first: float
    full: float


@dataclass(frozen=True, eq=False)
class Choice:
    """What the numbers say; shares from 0 to 1, qualities in percent."""

    best: Candidate
    curve: Curve
    """Of the best candidate, asked in the way that is taken at each share."""
    asked: AskedFrom
    lifts: dict[float, float]
    """By what rows store before they are filled (the share of F(old)): what new queries alone have
    on the way, the mean of the metrics up to the budget."""
    recommendation: str
    reason: str
    stop: float
    peak: float
    reach: dict[str, float | None]
    qualities: dict[str, dict[str, float]]
    bands: dict[str, tuple[Float, Float]]
    """Of 95 % at each point of the best curve."""
    lowest: dict[str, Lowest]
    alone: dict[str, Alone]
    by_way: dict[Asking, Candidate]
    """The best of every way of asking."""
    ways: dict[Asking, Lowest]
    """The lowest point of every way of asking, in the mean of the metrics."""

    def among(self, simulation: Simulation) -> list[Candidate]:
        """The candidates, the chosen one among them."""
        if self.best in simulation.candidates:
            return simulation.candidates
        return [*simulation.candidates, self.best]


def choose(
    simulation: Simulation,
    optimize: Sequence[str],
    *,
    budget: float = 1.0,
    target: float | None = None,
    today: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Choice:
    """The candidate with the largest area under the curve up to the budget, and where to stop.

    With several metrics their mean is optimized, among candidates that are below random replacement
    in none of them: an order that wins one metric at the cost of another is no default. A way of
    asking that is below today's index at some moment, with 95 % confidence, is taken only if all
    are; of the others the best, or new queries alone where they are as good: they need one model
    and one search. Filled items store the new model's own vectors unless a blend is better with
    95 % confidence, and rows that are not filled F(old), unless a mixture with the old vector is
    (chosen on half of the queries, confirmed by the other). From the share on at which new queries
    alone are as good as the way that is taken, they are asked alone.

    `target` (in percent, of the first metric) stands in for new/new, and `today` for old/old where
    the old model is gone and has embedded no queries; without it nothing is said of today's index.
    """
    if not 0 <= budget <= 1:
        raise BadInput(f"a budget of {budget}", step="use a share from 0 to 1")
    shares = simulation.candidates[0].curve.shares
    last = int(np.searchsorted(shares, budget + 1e-9, side="right"))
    levels = _today(simulation, optimize, today)
    old = None if levels is None else np.mean(list(levels.values()), axis=0)
    found = {
        way: _best_asked(simulation, way, optimize, budget, last, (resamples, seed))
        for way in dict.fromkeys(c.asking for c in simulation.candidates)
    }
    lifts: dict[float, float] = {}
    if "new" in found:
        found["new"], lifts = _best_lift(simulation, found["new"], optimize, last, resamples, seed)
    ways = {way: _lowest(look.values, shares, old, resamples, seed) for way, look in found.items()}
    way = _preferred(found, ways, shares[:last], resamples, seed)
    look = found[way]
    asked: AskedFrom = ((0.0, way),)
    by_itself = look.exact
    if way != "new":
        alone_look = _Look.alone(simulation, look.best, optimize, last)
        alone_look, lifts = _best_lift(simulation, alone_look, optimize, last, resamples, seed)
        look, by_itself = look.lifted(alone_look.best.lift), alone_look.exact
        switch = _switch(look, alone_look, resamples, seed)
        if switch is not None:
            look, asked = look.then(alone_look, switch), (*asked, (float(shares[switch]), "new"))
    best, exact = look.best, look.exact
    curve, (drawn_curve, drawn_old) = (
        look.values.mean(axis=1),
        look.drawn(old, resamples, seed),
    )
    top = int(np.argmax(curve))
    stop = next(
        t for t in range(top + 1) if interval(drawn_curve[:, top] - drawn_curve[:, t])[0] <= 0
    )
    alone = {
        m: _alone(by_itself, None if levels is None else float(levels[m].mean()), m, last)
        for m in optimize
    }
    recommendation, reason = _words(curve, drawn_curve, drawn_old, top, stop, shares, last)
    refused = recommendation == "do not upgrade"
    if way != "new" and not refused:
        said, stop = _until_alone(stop, alone, shares, last)
        recommendation = f"ask {way}, backfill {shares[stop]:.0%}"
        reason = f"{reason}; {said}"
        if len(asked) > 1:
            reason += f"; from {asked[1][0]:.0%} on new queries alone are as good"
    goals = {m: simulation.new.mean(m) for m in optimize}
    if target is not None:
        goals[optimize[0]] = target
    reach = {}
    for metric, goal in goals.items():
        there = np.flatnonzero(exact.means(metric)[:last] >= goal)
        reach[metric] = float(shares[there[0]]) if len(there) else None
    lowest = {}
    for metric in optimize:
        values = exact.of_queries(metric)[:last] * 100.0
        base = None if levels is None else levels[metric]
        lowest[metric] = _lowest(values, shares, base, resamples, seed)
    return Choice(
        best=best,
        curve=exact,
        asked=asked,
        lifts=lifts,
        recommendation=recommendation,
        reason=reason,
        stop=0.0 if refused else float(shares[stop]),
        peak=float(shares[top]),
        reach=reach,
        qualities={
            metric: {
                **({} if levels is None else {"old/old": float(levels[metric].mean())}),
                "new/new": simulation.new.mean(metric),
                "at 0 %": float(exact.means(metric)[0]),
                "lowest": lowest[metric].quality,
                "at the stop": float(exact.means(metric)[stop]),
                "at the peak": float(exact.means(metric)[top]),
                "fully backfilled": float(exact.means(metric)[-1]),
                "area": exact.area(metric),
            }
            for metric in optimize
        },
        bands={m: _band(exact.of_queries(m), resamples, seed) for m in optimize},
        lowest=lowest,
        alone=alone,
        by_way={way: look.best for way, look in found.items()},
        ways=ways,
    )


@dataclass(frozen=True, eq=False)
class _Look:
    """The best candidate of a way of asking, with what each query makes of it."""

    best: Candidate
    exact: Curve
    values: Float
    """In percent, the mean of the metrics (points up to the budget, queries)."""

    @classmethod
    def at(
        cls, simulation: Simulation, best: Candidate, optimize: Sequence[str], last: int
    ) -> _Look:
        exact = simulation.curve(best)
        values = np.mean([exact.of_queries(m) for m in optimize], axis=0)[:last] * 100.0
        return cls(best, exact, values)

    @classmethod
    def alone(
        cls, simulation: Simulation, best: Candidate, optimize: Sequence[str], last: int
    ) -> _Look:
        """The same rows, asked with new queries alone."""
        exact = simulation.alone(best)
        return cls.at(simulation, replace(best, asking="new", curve=exact), optimize, last)

    def lifted(self, lift: float) -> _Look:
        """With what rows store before they are filled, where this way of asking does not see it."""
        return self if lift == self.best.lift else replace(self, best=replace(self.best, lift=lift))

    def then(self, other: _Look, point: int) -> _Look:
        """This one up to a point of the curve, and from there on the other."""
        later = other.exact.values
        values = {
            metric: np.concatenate([found[:point], later[metric][point:]])
            for metric, found in self.exact.values.items()
        }
        return _Look(
            self.best,
            replace(self.exact, values=values),
            np.concatenate([self.values[:point], other.values[point:]]),
        )

    def drawn(self, old: Float | None, resamples: int, seed: int) -> tuple[Float, Float | None]:
        """Resampled means of the curve (resamples, points) and of old/old."""
        if old is None:
            return _resampled(self.values, resamples, seed), None
        found = _resampled(np.concatenate([self.values, old[None]]), resamples, seed)
        return found[:, :-1], found[:, -1]

    def areas(self, shares: Float) -> Float:
        """Each query's own mean along the curve."""
        if len(shares) == 1:
            return np.asarray(self.values[0])
        return np.asarray(np.trapezoid(self.values, shares, axis=0) / shares[-1])


def _best_asked(
    simulation: Simulation,
    way: str,
    optimize: Sequence[str],
    budget: float,
    last: int,
    draws: tuple[int, int],
) -> _Look:
    asked = [c for c in simulation.candidates if c.asking == way]
    plain = [c.areas(optimize, budget) for c in asked if c.plain]
    fair = [c for c in asked if all((c.areas(optimize, budget) >= p).all() for p in plain)]

    def first(some: list[Candidate]) -> _Look:
        # Of equal worth the first: replacement before blending, simple orders before learned ones.
        best = max(some, key=lambda c: float(c.areas(optimize, budget).mean()))
        return _Look.at(simulation, best, optimize, last)

    found, own = first(fair), [c for c in fair if c.blend.plain]
    if found.best.blend.plain or not own:
        return found
    replaced, shares = first(own), found.best.curve.shares[:last]
    gain = found.areas(shares) - replaced.areas(shares)
    return found if interval(_resampled(gain[None], *draws)[:, 0])[0] > 0 else replaced


def _best_lift(
    simulation: Simulation,
    look: _Look,
    optimize: Sequence[str],
    last: int,
    resamples: int,
    seed: int,
) -> tuple[_Look, dict[float, float]]:
    """Rows that store F(old) before they are filled, or what is better than that beyond doubt.

    Chosen on half of the queries and kept if the other half confirms it; and what each has.
    """
    shares = look.best.curve.shares[:last]
    base = look.areas(shares)
    areas = {look.best.lift: float(base.mean())}
    order = np.random.default_rng(seed).permutation(len(base))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    found, gains = look, np.zeros(len(base))
    for lift in simulation.lifts if len(first) else ():
        other = _Look.at(simulation, simulation.lifted(look.best, lift), optimize, last)
        gain = other.areas(shares) - base
        areas[lift] = float((base + gain).mean())
        if gain[first].mean() > gains[first].mean():
            found, gains = other, gain
    if found is look:
        return look, areas
    confirmed = interval(_resampled(gains[None, second], resamples, seed)[:, 0])[0] > 0
    return (found if confirmed else look), areas


def _switch(look: _Look, alone: _Look, resamples: int, seed: int) -> int | None:
    """The point from which on new queries alone are as good as both; None if they never are.

    As good is at each point from there on: not worse by more than `AS_GOOD` with 95 % confidence.
    """
    drawn = _resampled(alone.values - look.values, resamples, seed)
    low = np.quantile(drawn, 0.025, axis=0)
    worse = np.flatnonzero(low < -AS_GOOD)
    first = int(worse[-1]) + 1 if len(worse) else 0
    return first if first < len(low) - 1 else None


def _preferred(
    found: dict[Asking, _Look],
    ways: dict[Asking, Lowest],
    shares: Float,
    resamples: int,
    seed: int,
) -> Asking:
    safe = [way for way, lowest in ways.items() if not lowest.below] or list(found)
    areas = {way: found[way].areas(shares) for way in safe}
    first = max(safe, key=lambda way: float(areas[way].mean()))
    if "new" in safe and first != "new":
        gap = _resampled((areas["new"] - areas[first])[None], resamples, seed)[:, 0]
        if interval(gap)[0] >= -AS_GOOD:
            return "new"
    return first


def _lowest(values: Float, shares: Float, old: Float | None, resamples: int, seed: int) -> Lowest:
    at = int(np.argmin(values.mean(axis=1)))
    share, quality = float(shares[at]), float(values[at].mean())
    if old is None:
        return Lowest(share, quality, None, None)
    both = _resampled(np.stack([values[at], old]), resamples, seed)
    return Lowest(share, quality, quality - float(old.mean()), interval(both[:, 0] - both[:, 1]))


def _alone(curve: Curve, old: float | None, metric: str, last: int) -> Alone:
    means = curve.means(metric)[:last]
    below = np.flatnonzero(means < (np.inf if old is None else old))
    first = int(below[-1]) + 1 if len(below) else 0
    return Alone(
        float(curve.shares[first]) if first < len(means) else None,
        float(means[0]),
        float(curve.means(metric)[-1]),
    )


def _until_alone(stop: int, alone: dict[str, Alone], shares: Float, last: int) -> tuple[str, int]:
    """What asking with the old model too means for the end of it, and the share to fill to."""
    reached = [one.reaches for one in alone.values()]
    known = [share for share in reached if share is not None]
    if len(known) < len(reached):
        return (
            f"new queries alone are below today's level up to {shares[last - 1]:.0%}: keep the old "
            "vectors (finish --keep-old)",
            stop,
        )
    enough = max(known)
    if not enough:
        return "new queries alone are at no share below today's level", stop
    at = max(stop, int(np.searchsorted(shares, enough - 1e-9)))
    return f"new queries alone reach today's level at {enough:.0%}: do not finish before", at


def _words(
    curve: Float, drawn: Float, old: Float | None, top: int, stop: int, shares: Float, last: int
) -> tuple[str, str]:
    if old is not None and interval(drawn[:, top] - old)[1] < 0:
        return "do not upgrade", "even the best point of the curve is below today's index"
    if stop == 0:
        return "stop at 0 %", "no share of backfilling is better than none with 95 % confidence"
    if stop == len(curve) - 1 and last == len(shares):
        return "do a full backfill", "every item still adds to the quality"
    return (
        f"backfill {shares[stop]:.0%}",
        f"from there on nothing up to {shares[last - 1]:.0%} is better with 95 % confidence",
    )


def _today(
    simulation: Simulation, metrics: Sequence[str], known: float | None
) -> dict[str, Float] | None:
    """By metric what each query finds today, in percent; None where nobody can tell."""
    if simulation.old is not None:
        if known is not None:
            raise BadInput(
                "today's level is measured on these queries, and one was given",
                step="leave it out, or give queries of the new model alone",
            )
        return {m: _line(simulation.old.values, [m]) for m in metrics}
    if known is None:
        return None
    if len(metrics) > 1:
        raise BadInput(
            "today's level is given for one metric, and several are optimized",
            step="name one with --optimize",
        )
    return {metrics[0]: np.full(simulation.new.queries, known)}


def _line(values: dict[str, Float], metrics: Sequence[str]) -> Float:
    found = np.mean([values[m] for m in metrics], axis=0) * 100.0
    return np.asarray(found[np.isfinite(found)])


def _resampled(values: Float, resamples: int, seed: int) -> Float:
    """Means of rows (points, queries) over queries drawn with replacement (resamples, points)."""
    return resampled_means(np.ascontiguousarray(values.T), resamples, seed)


def _band(values: Float, resamples: int, seed: int) -> tuple[Float, Float]:
    drawn = _resampled(values * 100.0, resamples, seed)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return low, high
