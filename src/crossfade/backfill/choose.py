"""The plan: which order, which blend, where to stop and what it costs, chosen by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import AskedFrom, Asking
from crossfade.backfill.curve import Curve, halves
from crossfade.backfill.simulate import ROUND_OFF, Candidate, Simulation
from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.errors import BadInput

RESAMPLES = 1000
AS_GOOD = 0.5
"""Points by which new queries alone may be worse, with 95 % confidence, and still be preferred."""
BELOW = "below today's index on the way"
"""How the warning begins where nothing that was tried is never below it."""
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
        return self.ci95 is not None and self.ci95[1] < -ROUND_OFF


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
    warnings: list[str]
    """That it is below today's index somewhere, where all that was tried is."""

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
    in none of them: an order that wins one metric at the cost of another is no default. What is
    below today's index in any of them, at any share and with 95 % confidence, is taken only if all
    that was tried is, and then said to be. Of the other ways of asking the best is taken, or new
    queries alone where they are as good: they need one model and one search. Filled items store the
    new model's own vectors unless a blend is better, and rows that are not filled F(old), unless a
    mixture with the old vector is; both are chosen on half of the queries and confirmed by the
    other with 95 % confidence. From the share on at which new queries alone are as good as the way
    that is taken, and never again below today, they are asked alone.

    `target` (in percent, of the first metric) stands in for new/new, and `today` for old/old where
    the old model is gone and has embedded no queries; without it nothing is said of today's index.
    """
    if not 0 <= budget <= 1:
        raise BadInput(f"a budget of {budget}", step="use a share from 0 to 1")
    shares = simulation.candidates[0].curve.shares
    last = int(np.searchsorted(shares, budget + 1e-9, side="right"))
    levels = _today(simulation, optimize, today)
    old = None if levels is None else np.mean(list(levels.values()), axis=0)
    judge = _Judge(simulation, optimize, budget, last, levels or {}, resamples, seed)
    found = {
        way: _best_asked(judge, way)
        for way in dict.fromkeys(c.asking for c in simulation.candidates)
    }
    lifts: dict[float, float] = {}
    if "new" in found:
        found["new"], lifts = _best_lift(judge, found["new"])
    ways = {way: _lowest(look.values, shares, old, resamples, seed) for way, look in found.items()}
    way = _preferred(judge, found)
    look = found[way]
    asked: AskedFrom = ((0.0, way),)
    by_itself = look
    if way != "new":
        alone_look = judge.alone(look.best)
        if look.hears_lifted:
            lifts = {look.best.lift: float(alone_look.areas(shares[:last]).mean())}
        else:
            alone_look, lifts = _best_lift(judge, alone_look)
        look, by_itself = look.lifted(alone_look.best.lift), alone_look
        switch = _switch(judge, look, alone_look)
        if switch == 0 and "new" in found:
            look, way, asked = alone_look, "new", ((0.0, "new"),)
        elif switch:
            look, asked = look.then(alone_look, switch), (*asked, (float(shares[switch]), "new"))
    best, exact = look.best, look.exact
    drawn_curve, drawn_old = look.drawn(old, resamples, seed)
    top, stop = _pays_until(look.values, drawn_curve)
    alone = {
        m: _alone(by_itself.exact, None if levels is None else float(levels[m].mean()), m, last)
        for m in optimize
    }
    recommendation, reason = _words(drawn_curve, drawn_old, top, stop, shares, last)
    refused = recommendation == "do not upgrade"
    if way != "new" and not refused:
        paid = _pays_until(by_itself.values, judge.resampled(by_itself.values))[1]
        said, stop = _until_alone(stop, paid, alone, shares, last)
        recommendation = f"ask {way}, backfill {shares[stop]:.0%}"
        reason = f"{reason}; {said}"
        if len(asked) > 1:
            reason += f"; from {asked[1][0]:.0%} on new queries alone are as good"
    warnings, below = [], judge.below(exact)
    if any(points.any() for points in below.values()):
        worst = _worst(judge, exact, below)
        warnings.append(f"{BELOW}: {worst}; all that was tried is, at some share")
        if not refused:
            reason += f"; {BELOW}, as is all that was tried: {worst}"
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
        warnings=warnings,
    )


@dataclass(frozen=True, eq=False)
class _Look:
    """A candidate, with what each query makes of it."""

    best: Candidate
    exact: Curve
    values: Float
    """In percent, the mean of the metrics (points up to the budget, queries)."""

    @property
    def hears_lifted(self) -> bool:
        """Whether it asks what rows store before they are filled."""
        return self.best.asking == "both" and self.best.weights.lifted_forward > 0

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


@dataclass(frozen=True, eq=False)
class _Judge:
    """What candidates are judged by: metrics, points up to the budget, and today's levels."""

    simulation: Simulation
    optimize: Sequence[str]
    budget: float
    last: int
    levels: dict[str, Float]
    """By metric what each query finds today, in percent; empty where nobody can tell."""
    resamples: int
    seed: int

    def look(self, best: Candidate) -> _Look:
        exact = self.simulation.curve(best)
        values = np.mean([exact.of_queries(m) for m in self.optimize], axis=0)[: self.last] * 100.0
        return _Look(best, exact, values)

    def alone(self, best: Candidate) -> _Look:
        """The same rows, asked with new queries alone."""
        return self.look(replace(best, asking="new", curve=self.simulation.alone(best)))

    def area(self, candidate: Candidate, *, half: bool = False) -> float:
        """The mean of the metrics along the line, of all queries or the first half of them."""
        return float(candidate.areas(self.optimize, self.budget, half=half).mean())

    def resampled(self, values: Float) -> Float:
        return _resampled(values, self.resamples, self.seed)

    def below(self, curve: Curve) -> dict[str, NDArray[np.bool_]]:
        """By metric, the points at which it is below today's index with 95 % confidence."""
        out = {}
        for metric, today in self.levels.items():
            gain = curve.of_queries(metric)[: self.last] * 100.0 - today
            out[metric] = gain.mean(axis=1) < -ROUND_OFF
            if out[metric].any():
                drawn = self.resampled(gain[out[metric]])
                out[metric][out[metric]] = np.quantile(drawn, 0.975, axis=0) < -ROUND_OFF
        return out

    def never_below(self, look: _Look) -> bool:
        """Whether it is below today's index in no metric and at no point."""
        return not any(points.any() for points in self.below(look.exact).values())


def _best_asked(judge: _Judge, way: Asking) -> _Look:
    """The best candidate of a way of asking, of those that are never below today if there are."""
    asked = [c for c in judge.simulation.candidates if c.asking == way]
    today = {metric: float(level.mean()) for metric, level in judge.levels.items()}
    # To look at every query again takes as long as the simulation did: lines tell nearly as much.
    left = [c for c in asked if c.seems_level(today, judge.last)]
    while left:
        look = _best_of(judge, left)
        if judge.never_below(look):
            return look
        left = [c for c in left if c is not look.best]
    return _best_of(judge, asked)


def _best_of(judge: _Judge, some: list[Candidate]) -> _Look:
    """The best of these that lose nothing in any metric, with a blend if it is surely better.

    The blend is chosen on half of the queries and kept if the other half confirms it.
    """
    budget, metrics = judge.budget, judge.optimize
    plain = [c.areas(metrics, budget) for c in some if c.plain]
    fair = [c for c in some if all((c.areas(metrics, budget) >= p).all() for p in plain)]
    own = [c for c in fair if c.blend.plain]
    others = [c for c in fair if not c.blend.plain]
    # Of equal worth the first: replacement before blending, simple orders before learned ones.
    replaced = max(own or others, key=judge.area)
    if not own or not others:
        return judge.look(replaced)
    blended = max(others, key=lambda c: judge.area(c, half=True))
    look = judge.look(replaced)
    if judge.area(blended, half=True) <= judge.area(replaced, half=True):
        return look
    other, shares = judge.look(blended), replaced.curve.shares[: judge.last]
    gain = other.areas(shares) - look.areas(shares)
    second = halves(len(gain))[1]
    if not len(second) or interval(judge.resampled(gain[None, second])[:, 0])[0] <= 0:
        return look
    return other


def _best_lift(judge: _Judge, look: _Look) -> tuple[_Look, dict[float, float]]:
    """Rows that store F(old) before they are filled, or what is better than that beyond doubt.

    Chosen on half of the queries and kept if the other half confirms it; and what each has. Where
    F(old) is below today at some point and a mixture never is, the best of such is taken.
    """
    simulation, shares = judge.simulation, look.best.curve.shares[: judge.last]
    others = [judge.look(simulation.lifted(look.best, lift)) for lift in simulation.lifts]
    values = {one.best.lift: one.areas(shares) for one in (look, *others)}
    areas = {lift: float(found.mean()) for lift, found in values.items()}
    safe = [one for one in others if judge.never_below(one)]
    if safe and not judge.never_below(look):
        return max(safe, key=lambda one: areas[one.best.lift]), areas
    base = values[look.best.lift]
    order = np.random.default_rng(judge.seed).permutation(len(base))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    found, gains = look, np.zeros(len(base))
    for other in (safe or others) if len(first) else ():
        gain = values[other.best.lift] - base
        if gain[first].mean() > gains[first].mean():
            found, gains = other, gain
    if found is look:
        return look, areas
    confirmed = interval(judge.resampled(gains[None, second])[:, 0])[0] > 0
    return (found if confirmed else look), areas


def _switch(judge: _Judge, look: _Look, alone: _Look) -> int | None:
    """The point from which on new queries alone are as good as both; None if they never are.

    As good is at each point from there on: below today's index in no metric, and not worse by more
    than `AS_GOOD` with 95 % confidence.
    """
    low = np.quantile(judge.resampled(alone.values - look.values), 0.025, axis=0)
    worse = low < -AS_GOOD
    for points in judge.below(alone.exact).values():
        worse |= points
    found = np.flatnonzero(worse)
    first = int(found[-1]) + 1 if len(found) else 0
    return first if first < len(low) - 1 else None


def _preferred(judge: _Judge, found: dict[Asking, _Look]) -> Asking:
    safe = [way for way, look in found.items() if judge.never_below(look)] or list(found)
    shares = next(iter(found.values())).best.curve.shares[: judge.last]
    areas = {way: found[way].areas(shares) for way in safe}
    first = max(safe, key=lambda way: float(areas[way].mean()))
    if "new" in safe and first != "new":
        gap = judge.resampled((areas["new"] - areas[first])[None])[:, 0]
        if interval(gap)[0] >= -AS_GOOD:
            return "new"
    return first


def _worst(judge: _Judge, curve: Curve, below: dict[str, NDArray[np.bool_]]) -> str:
    """Of each metric that is below today's index, where it is most and by how much."""
    out = []
    for metric, points in below.items():
        if not points.any():
            continue
        gain = curve.of_queries(metric)[: judge.last] * 100.0 - judge.levels[metric]
        at = int(np.argmin(np.where(points, gain.mean(axis=1), np.inf)))
        low, high = interval(judge.resampled(gain[at][None])[:, 0])
        points_below = f"{-gain[at].mean():.1f} points [{low:+.1f}, {high:+.1f}]"
        out.append(f"{metric} by {points_below} at {curve.shares[at]:.0%}")
    return ", ".join(out)


def _lowest(values: Float, shares: Float, old: Float | None, resamples: int, seed: int) -> Lowest:
    at = int(np.argmin(values.mean(axis=1)))
    share, quality = float(shares[at]), float(values[at].mean())
    if old is None:
        return Lowest(share, quality, None, None)
    gain = _resampled((values[at] - old)[None], resamples, seed)
    return Lowest(share, quality, quality - float(old.mean()), interval(gain[:, 0]))


def _alone(curve: Curve, old: float | None, metric: str, last: int) -> Alone:
    means = curve.means(metric)[:last]
    below = np.flatnonzero(means < (np.inf if old is None else old))
    first = int(below[-1]) + 1 if len(below) else 0
    return Alone(
        float(curve.shares[first]) if first < len(means) else None,
        float(means[0]),
        float(curve.means(metric)[-1]),
    )


def _pays_until(values: Float, drawn: Float) -> tuple[int, int]:
    """The best point of some (points, queries), and the first than which it is not better with
    95 % confidence: beyond that filling does not pay."""
    top = int(np.argmax(values.mean(axis=1)))
    return top, next(t for t in range(top + 1) if interval(drawn[:, top] - drawn[:, t])[0] <= 0)


def _until_alone(
    stop: int, paid: int, alone: dict[str, Alone], shares: Float, last: int
) -> tuple[str, int]:
    """What asking with the old model too means for the end of it, and the share to fill to.

    That is no less than what pays for new queries alone (`paid`): they are what is left of both
    once the migration is finished.
    """
    reached = [one.reaches for one in alone.values()]
    known = [share for share in reached if share is not None]
    if len(known) < len(reached):
        return (
            f"new queries alone are below today's level up to {shares[last - 1]:.0%}: keep the old "
            "vectors (finish --keep-old)",
            stop,
        )
    enough = max(known)
    said = "new queries alone are at no share below today's level"
    if enough:
        said = f"new queries alone reach today's level at {enough:.0%}: do not finish before"
    if paid > stop:
        said += f"; they gain up to {shares[paid]:.0%}"
    return said, max(stop, paid, int(np.searchsorted(shares, enough - 1e-9)))


def _words(
    drawn: Float, old: Float | None, top: int, stop: int, shares: Float, last: int
) -> tuple[str, str]:
    if old is not None and interval(drawn[:, top] - old)[1] < 0:
        return "do not upgrade", "even the best point of the curve is below today's index"
    if stop == 0:
        return "stop at 0 %", "no share of backfilling is better than none with 95 % confidence"
    if stop == len(shares) - 1:
        return "do a full backfill", "every item still adds to the quality"
    return (
        f"backfill {shares[stop]:.0%}",
        f"beyond {shares[stop]:.0%} nothing up to {shares[last - 1]:.0%} is better with 95 % "
        "confidence",
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
