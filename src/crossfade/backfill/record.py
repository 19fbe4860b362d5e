"""What plan.json holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from crossfade.asking import DEFAULT, AskedFrom, Asking, Weights, asking_at
from crossfade.backfill.blend import Blend
from crossfade.backfill.choose import BELOW, Choice, Costs
from crossfade.backfill.orders import orders_in
from crossfade.backfill.simulate import Simulation
from crossfade.errors import BadInput
from crossfade.upgrade import Upgrade


class Promises(BaseModel):
    """What a plan says beforehand of the way and of its end, by metric."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recommendation: str
    knows_today: bool
    """Whether today's index was measured, or its level given."""
    lowest: dict[str, dict[str, Any]]
    """The worst moment on the way."""
    alone: dict[str, float | None]
    """From which share on new queries by themselves are no longer below today's index."""
    reach: dict[str, float | None]
    """From which share on it is as good as with every row new."""

    def of_the_way(self) -> list[str]:
        """The worst moment, and when the old model can go."""
        out = []
        for metric, low in self.lowest.items():
            if low["ci95"] is None:
                lowest = f"the lowest point is at {low['share']:.0%}, {low['quality']:.1f}"
                out.append(f"{metric}: {lowest}")
                continue
            least, most = low["ci95"]
            out.append(
                f"{metric}: the lowest point is at {low['share']:.0%}, {low['against_today']:+.1f} "
                f"[{least:+.1f}, {most:+.1f}] against today"
            )
        for metric, share in self.alone.items() if self.knows_today else ():
            until = "never are" if share is None else f"are from {share:.0%} on"
            out.append(f"{metric}: new queries alone {until} no longer below old/old")
        return out

    def of_the_end(self) -> list[str]:
        """When it is as good as a gallery that is new throughout."""
        return [
            f"{metric}: new/new is reached "
            + ("at no share before the end" if share is None else f"at {share:.0%}")
            for metric, share in self.reach.items()
        ]


class PlanRecord(BaseModel):
    """What plan.json holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1, 2] = 2
    """1 asks in one way at every share, of rows that store F(old) before they are filled."""
    upgrade: str
    data: str
    queries: int
    gallery: int
    start: str = "lifted"
    """What the simulated gallery held at 0 %: old, lifted, or one of these and filled "by row"."""
    held_out: bool = True
    """Whether the pairs had no part in the fit; if not, they are its validation rows."""
    optimize: list[str]
    budget: float
    asking: Asking = "new"
    """How a gallery under way is asked, at first."""
    asked: AskedFrom = ()
    """From which share on it is asked in which way; empty is in one way throughout."""
    lift: float = 1.0
    """The share of F(old) in what a row stores before it is filled; the rest is the old vector as
    it is, and 0 is not to lift."""
    lifts: dict[str, float] = {}
    """By that share, what new queries alone have on the way."""
    weights: Weights = DEFAULT
    """What each voice counts where both models are asked."""
    order: str
    groups: Literal["classes", "clusters"] | None = None
    """What the order compares items with, if with anything; clusters are in the tensors."""
    classes: list[int | str] | None = None
    """Names of the classes planned on; None without labels."""
    blend: float
    """a of the first item of the order; `last_blend` that of the last, evenly between them."""
    last_blend: float
    volume: float = 1.0
    """By which the scores of the first item are turned down; `last_volume` those of the last."""
    last_volume: float = 1.0
    store: str | None = None
    """The store on all of whose rows the curve is; None where it is on the held rows alone."""
    sample: dict[str, Any] = {}
    """Then `gallery`, `asking`, `quality` and `curve` as they are on the held rows alone."""
    recommendation: str
    reason: str
    stop: float
    peak: float
    reach: dict[str, float | None]
    lowest: dict[str, dict[str, Any]] = {}
    """By metric the worst moment on the way, and how far it is from today's index, in points."""
    alone: dict[str, dict[str, float | None]] = {}
    """By metric, new queries by themselves on the same rows: `reaches` is the share from which on
    they are no longer below old/old."""
    ways: dict[str, dict[str, Any]] = {}
    """The worst moment of each way of asking, in the mean of the metrics."""
    quality: dict[str, dict[str, float]]
    curve: dict[str, list[float]]
    """`share` and, for each metric, the quality in percent that the gallery has at that share."""
    costs: dict[str, dict[str, float | int | None]]
    estimate: dict[str, Any] = {}
    """What carrying it out will take, from a trial on the store and the model; else empty."""
    candidates: list[dict[str, Any]]
    warnings: list[str]

    @property
    def how(self) -> Blend:
        """What backfilled items store."""
        return Blend(self.blend, self.last_blend, self.volume, self.last_volume)

    def asking_at(self, share: float) -> Asking:
        """How to ask where this share is filled."""
        return asking_at(self.asked or ((0.0, self.asking),), share)

    @property
    def alone_from(self) -> float | None:
        """The share from which on the old model is no longer needed; None if none is known."""
        reached = [one["reaches"] for one in self.alone.values()]
        known = [share for share in reached if share is not None]
        return max(known) if known and len(known) == len(reached) else None

    @property
    def knows_today(self) -> bool:
        """Whether today's index was measured, or its level given."""
        return all("old/old" in found for found in self.quality.values())

    @property
    def promises(self) -> Promises:
        """What it says beforehand, for those who carry it out."""
        return Promises(
            recommendation=self.recommendation,
            knows_today=self.knows_today,
            lowest=self.lowest,
            alone={metric: one["reaches"] for metric, one in self.alone.items()},
            reach=self.reach,
        )

    def quality_at(self, share: float, metric: str) -> float:
        """What the simulated gallery reaches at a share from 0 to 1, in percent."""
        if metric not in self.curve or not 0 <= share <= 1:
            raise BadInput(f"the plan has no {metric} at {share}", step="use a share from 0 to 1")
        return float(np.interp(share, self.curve["share"], self.curve[metric]))


def describe(
    upgrade: Upgrade,
    simulation: Simulation,
    choice: Choice,
    costs: Costs,
    *,
    data: str,
    gallery: int,
    optimize: list[str],
    budget: float,
    warnings: list[str],
    start: str = "lifted",
    held_out: bool = True,
    classes: list[int | str] | None = None,
) -> PlanRecord:
    """The plan that `choice` makes."""
    best, groups = choice.best, simulation.groups
    grouped = any(order.by_groups for order in orders_in(best.order)) and groups is not None
    reached = {f"reach new/new in {m}": share for m, share in choice.reach.items()}
    points: dict[str, float | None] = {"stop": choice.stop, "peak": choice.peak, **reached}
    for metric, found in choice.alone.items():
        points[f"do without the old model in {metric}"] = found.reaches
    points["full"] = 1.0
    return PlanRecord(
        upgrade=upgrade.hash_,
        data=data,
        queries=simulation.new.queries,
        gallery=gallery,
        start=start,
        held_out=held_out,
        optimize=optimize,
        budget=budget,
        asking=best.asking,
        asked=choice.asked if len(choice.asked) > 1 else (),
        lift=best.lift,
        lifts={f"{lift:g}": area for lift, area in choice.lifts.items()},
        weights=best.weights,
        order=best.order,
        groups=("classes" if groups.labelled else "clusters") if grouped and groups else None,
        classes=classes,
        blend=best.blend.first,
        last_blend=best.blend.last,
        volume=best.blend.first_volume,
        last_volume=best.blend.last_volume,
        recommendation=choice.recommendation,
        reason=choice.reason,
        stop=choice.stop,
        peak=choice.peak,
        reach=choice.reach,
        lowest={m: asdict(found) for m, found in choice.lowest.items()},
        alone={m: asdict(found) for m, found in choice.alone.items()},
        ways={way: asdict(found) for way, found in choice.ways.items()},
        quality=choice.qualities,
        curve={"share": choice.curve.shares.tolist()}
        | {m: choice.curve.means(m).tolist() for m in choice.curve.values},
        costs={name: costs.record(s) for name, s in points.items() if s is not None},
        candidates=[
            {
                "asking": c.asking,
                "weights": str(c.weights),
                "order": c.order,
                "blend": c.blend.first,
                "last_blend": c.blend.last,
                "volume": c.blend.first_volume,
                "last_volume": c.blend.last_volume,
                "lift": c.lift,
                "area": {m: c.curve.area(m) for m in c.curve.values},
                "full": {m: float(c.curve.means(m)[-1]) for m in c.curve.values},
            }
            for c in choice.among(simulation)
        ],
        # What was said of it on fewer rows does not hold for these.
        warnings=[*(said for said in warnings if not said.startswith(BELOW)), *choice.warnings],
    )
