"""The plan: which order, which blend, where to stop and what it costs, chosen by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.simulate import Candidate, Simulation
from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.errors import BadInput

RESAMPLES = 1000
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


@dataclass(frozen=True, eq=False)
class Choice:
    """What the numbers say; shares from 0 to 1, qualities in percent."""

    best: Candidate
    recommendation: str
    reason: str
    stop: float
    peak: float
    reach: dict[str, float | None]
    qualities: dict[str, dict[str, float]]
    bands: dict[str, tuple[Float, Float]]
    """Of 95 % at each point of the best curve."""


def choose(
    simulation: Simulation,
    optimize: Sequence[str],
    *,
    budget: float = 1.0,
    target: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Choice:
    """The candidate with the largest area under the curve up to the budget, and where to stop.

    With several metrics their mean is optimized, among candidates that are below random replacement
    in none of them: an order that wins one metric at the cost of another is no default. `target`
    (in percent, of the first metric) stands in for new/new.
    """
    if not 0 <= budget <= 1:
        raise BadInput(f"a budget of {budget}", step="use a share from 0 to 1")
    shares = simulation.candidates[0].curve.shares
    last = int(np.searchsorted(shares, budget + 1e-9, side="right"))
    plain = [c.areas(optimize, budget) for c in simulation.candidates if c.plain]
    fair = [
        c
        for c in simulation.candidates
        if all((c.areas(optimize, budget) >= p).all() for p in plain)
    ]
    # Of equal worth the first: replacement before blending, simple orders before learned ones.
    best = max(fair, key=lambda c: float(c.areas(optimize, budget).mean()))
    exact = simulation.curve(best)
    values = np.mean([exact.of_queries(m) for m in optimize], axis=0)[:last] * 100.0
    old = _line(simulation.old.values, optimize)
    drawn = _resampled(np.concatenate([values, old[None]]), resamples, seed)
    curve, drawn_curve, drawn_old = values.mean(axis=1), drawn[:, :-1], drawn[:, -1]
    top = int(np.argmax(curve))
    stop = next(
        t for t in range(top + 1) if interval(drawn_curve[:, top] - drawn_curve[:, t])[0] <= 0
    )
    recommendation, reason = _words(curve, drawn_curve, drawn_old, top, stop, shares, last)
    goals = {m: simulation.new.mean(m) for m in optimize}
    if target is not None:
        goals[optimize[0]] = target
    reach = {}
    for metric, goal in goals.items():
        there = np.flatnonzero(best.curve.means(metric)[:last] >= goal)
        reach[metric] = float(shares[there[0]]) if len(there) else None
    return Choice(
        best=best,
        recommendation=recommendation,
        reason=reason,
        stop=0.0 if recommendation == "do not upgrade" else float(shares[stop]),
        peak=float(shares[top]),
        reach=reach,
        qualities={
            metric: {
                "old/old": simulation.old.mean(metric),
                "new/new": simulation.new.mean(metric),
                "at 0 %": float(best.curve.means(metric)[0]),
                "at the stop": float(best.curve.means(metric)[stop]),
                "at the peak": float(best.curve.means(metric)[top]),
                "fully backfilled": float(best.curve.means(metric)[-1]),
                "area": best.curve.area(metric),
            }
            for metric in optimize
        },
        bands={m: _band(exact.of_queries(m), resamples, seed) for m in optimize},
    )


def _words(
    curve: Float, drawn: Float, old: Float, top: int, stop: int, shares: Float, last: int
) -> tuple[str, str]:
    if interval(drawn[:, top] - old)[1] < 0:
        return "do not upgrade", "even the best point of the curve is below today's index"
    if stop == 0:
        return "stop at 0 %", "no share of backfilling is better than none with 95 % confidence"
    if stop == len(curve) - 1 and last == len(shares):
        return "do a full backfill", "every item still adds to the quality"
    return (
        f"backfill {shares[stop]:.0%}",
        f"from there on nothing up to {shares[last - 1]:.0%} is better with 95 % confidence",
    )


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
