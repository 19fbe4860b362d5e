"""What the plan's curve says of the share that is backfilled."""

from __future__ import annotations

from dataclasses import dataclass

from crossfade.backfill.plan import Plan


@dataclass(frozen=True)
class Predicted:
    """Quality in percent, by metric: before, now, at the plan's stop, and with every row new."""

    old: dict[str, float]
    now: dict[str, float]
    at_stop: dict[str, float]
    new: dict[str, float]


def predict_quality(plan: Plan, share: float) -> Predicted:
    """Read off the plan's own curve at `share` of the gallery."""
    made = plan.record
    return Predicted(
        old={m: q["old/old"] for m, q in made.quality.items() if "old/old" in q},
        now={m: made.quality_at(share, m) for m in made.quality},
        at_stop={m: made.quality_at(made.stop, m) for m in made.quality},
        new={m: q["new/new"] for m, q in made.quality.items()},
    )
