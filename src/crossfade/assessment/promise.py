"""What is promised of every stage of an upgrade, against today's search, with its interval.

Before anything is lifted, the whole store was asked. From there on new vectors are needed, which
held-out rows alone have: those numbers are of a smaller gallery. So what counts is the difference
to today's search on the same rows, not the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.choose import RESAMPLES
from crossfade.backfill.curve import Curve
from crossfade.backfill.plan import Plan
from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.compatibility.verdicts import AT_FIRST
from crossfade.errors import BadInput

Float = NDArray[np.float64]
TODAY, STARTED, LIFTED, FILLED, FINISHED = "today", "started", "lifted", "filled", "finished"


@dataclass(frozen=True)
class Level:
    """Quality in percent and, where today's search could be measured, by how many points it is
    above that, with a 95 % interval over queries."""

    quality: float
    against_today: float | None = None
    ci95: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Against today.

        >>> str(Level(61.0, 1.24, (-0.31, 2.9)))
        '+1.2 [-0.3, +2.9]'
        """
        if self.against_today is None or self.ci95 is None:
            return f"{self.quality:.1f}"
        # Adding zero makes −0 the same as 0.
        gain, low, high = (round(x, 1) + 0.0 for x in (self.against_today, *self.ci95))
        return f"{gain:+.1f} [{low:+.1f}, {high:+.1f}]"

    @property
    def better(self) -> bool:
        """Whether it is above today's search, with 95 % confidence."""
        return self.ci95 is not None and self.ci95[0] > 0

    @property
    def worse(self) -> bool:
        """Whether it is below today's search, with 95 % confidence."""
        return self.ci95 is not None and self.ci95[1] < 0


@dataclass(frozen=True)
class Stage:
    """One stage of an upgrade: how it is asked, on what it was measured, and what was found."""

    name: str
    asked: str
    share: float
    gallery: int
    whole_store: bool
    levels: dict[str, Level]
    """By metric."""

    @classmethod
    def read(cls, record: dict[str, Any]) -> Stage:
        """What `asdict` gave, as JSON has kept it."""
        levels = {
            metric: Level(**level | {"ci95": level["ci95"] and tuple(level["ci95"])})
            for metric, level in record["levels"].items()
        }
        return cls(**record | {"levels": levels})


def measured_on_store(
    evaluation: dict[str, Any], asked: str, metrics: Sequence[str]
) -> list[Stage]:
    """Today, and the untouched index once it is asked as planned, of an evaluation's record.

    Of labels, which no whole store is judged by, on the held rows. Without the old model's queries
    there is no today.
    """
    data, cases = evaluation["data"], evaluation["cases"]
    out = []
    for name, way in ((TODAY, "old"), (STARTED, asked)):
        case = AT_FIRST[way]
        if case not in cases:
            continue
        differences = evaluation["verdicts"].get(case, {}).get("metrics", {})
        levels = {}
        for metric in metrics:
            found = differences.get(metric, {"difference": None, "ci95": None})
            ends = found["ci95"] and tuple(found["ci95"])
            levels[metric] = Level(cases[case][metric], found["difference"], ends)
        out.append(Stage(name, way, 0.0, data["gallery"], "store" in data, levels))
    return out


def simulated(plan: Plan, seed: int) -> list[dict[str, Any]]:
    """Stages behind `forward`, as records: lifted, filled as planned, and finished."""
    if plan.made is None:
        raise BadInput("a plan that was read back keeps no values of queries")
    record, simulation = plan.record, plan.made.simulation
    best = plan.made.choice.best
    curve, alone = simulation.curve(best), simulation.alone(best)
    stop = int(np.searchsorted(curve.shares, record.stop - 1e-9))
    at = [(LIFTED, record.asking, curve, 0)]
    if stop:
        at.append((FILLED, record.asking, curve, stop))
    if ends_alone(plan):
        at.append((FINISHED, "new", alone, stop))
    today = _today(plan)
    return [
        asdict(
            Stage(
                name,
                way,
                float(walked.shares[point]),
                record.gallery,
                False,
                {m: _level(walked, point, m, today.get(m), seed) for m in record.optimize},
            )
        )
        for name, way, walked, point in at
    ]


def ends_alone(plan: Plan) -> bool:
    """Whether new queries alone are enough at the plan's stop, so that old vectors may go."""
    record = plan.record
    if record.asking == "new" or record.stop >= 1:
        return True
    return record.alone_from is not None and record.stop >= record.alone_from - 1e-9


def _today(plan: Plan) -> dict[str, Float | float]:
    """By metric what each query finds today, or the level that was given; both in percent."""
    if plan.made is not None and plan.made.simulation.old is not None:
        found = plan.made.simulation.old.values
        return {m: found[m][np.isfinite(found[m])] * 100.0 for m in plan.record.optimize}
    return {m: q["old/old"] for m, q in plan.record.quality.items() if "old/old" in q}


def _level(curve: Curve, point: int, metric: str, today: Float | float | None, seed: int) -> Level:
    values = curve.of_queries(metric)[point] * 100.0
    if today is None:
        return Level(float(values.mean()))
    gain = (values - today)[:, None]
    return Level(
        float(values.mean()),
        float(gain.mean()),
        interval(resampled_means(gain, RESAMPLES, seed)[:, 0]),
    )
