"""What the plan's curve says of the share that is backfilled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crossfade.backfill.plan import Plan


@dataclass(frozen=True)
class Predicted:
    """Quality in percent, by metric: before, now, at the plan's stop, and with every row new."""

    old: dict[str, float]
    now: dict[str, float]
    at_stop: dict[str, float]
    new: dict[str, float]


def predicted(folder: Path, share: float) -> Predicted:
    """Read off the plan's own curve at `share` of the gallery."""
    plan = Plan.load(folder).record
    return Predicted(
        old={m: q["old/old"] for m, q in plan.quality.items() if "old/old" in q},
        now={m: plan.quality_at(share, m) for m in plan.quality},
        at_stop={m: plan.quality_at(plan.stop, m) for m in plan.quality},
        new={m: q["new/new"] for m, q in plan.quality.items()},
    )
