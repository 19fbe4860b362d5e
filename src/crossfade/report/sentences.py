"""What cases, plans, evaluations and migrations say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.backfill.record import PlanRecord
from crossfade.migration.status import OWN_VECTORS, Status

# Who asks, and what is searched.
CASES: dict[str, tuple[str, str]] = {
    "old/old": ("the old model", "the old index: today's search"),
    "new/old": ("the new model, as it is", "the old index, untouched"),
    "new/new": ("the new model, as it is", "an index that is re-embedded as a whole"),
    "F(old)/old": ("the old model, lifted by F", "the old index, untouched"),
    "F(old)/F(old)": ("the old model, lifted by F", "the index lifted by F, nothing re-embedded"),
    "B(new)/F(old)": ("the new model, through B", "the index lifted by F, nothing re-embedded"),
    "B(new)/old": ("the new model, through B", "the old index, untouched"),
    "B(new)/B(new)": ("the new model, through B", "an index that is re-embedded, through B"),
    "both/old": ("both models, scores joined", "the old index, untouched"),
    "both/new": ("both models, scores joined", "an index with old and re-embedded vectors"),
    "blend/old": ("one query blended of both models", "the old index, untouched"),
}
WAYS = {
    "new": "with the new model alone",
    "old": "with the old model, as today",
    "both": "with both models, their scores joined",
    "blend": "with one query blended of both models",
}
VERDICTS = {
    "compatible": "better than today",
    "not compatible": "below today",
    "inconclusive": "no difference seen",
    "not judged": "not judged",
}
STAGES = {
    "started": "Started: new queries work, no row is lifted yet",
    "forwarding": "Rows are being lifted",
    "forward": "Every row is lifted",
    "backfilling": "Rows are being filled",
    "finishing": "Finishing: the shared column becomes the only one",
    "finished": "Finished: the new vectors are the only ones",
    "rolling back": "Rolling back: what the migration added is being dropped",
    "rolled back": "Rolled back: the old vectors are where they were",
}
HALFWAY = {
    "forwarding": "Some rows are lifted, not all",
    "backfilling": "Some rows are filled, fewer than planned",
}
STEPS = ("start", "forward", "backfill", "verify", "finish")


def signed(points: float) -> str:
    """
    >>> signed(-0.04), signed(1.25)
    ('0.0', '+1.2')
    """
    rounded = round(points, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def spell_seconds(seconds: float) -> str:
    """
    >>> [spell_seconds(n) for n in (0.2, 40, 600, 9000, 300_000)]
    ['less than 1 s', '40 s', '10 min', '2.5 h', '3.5 days']
    """
    if 0 < seconds < 1:
        return "less than 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def answer_plan(plan: PlanRecord) -> tuple[str, str]:
    """The answer in one sentence, and what kind it is: `good`, `bad`, or `unsure`."""
    if plan.recommendation == "do not upgrade":
        return f"Do not upgrade: {plan.reason}.", "bad"
    fill = (
        f"re-embed {plan.stop:.0%} of the gallery"
        if plan.stop
        else "re-embed nothing: no share of it is better than none"
    )
    parts = [f"Upgrade: ask {WAYS[plan.asking]}, {fill}"]
    cost = plan.costs.get("stop", {})
    if plan.stop and cost.get("items") is not None:
        said = f"{cost['items']:,} items"
        if cost.get("cost") is not None:
            said += f", at a cost of {cost['cost']:,.2f}"
        if cost.get("seconds") is not None:
            said += f", in {spell_seconds(float(cost['seconds'] or 0))}"
        parts.append(f" ({said})")
    if not plan.quality:
        return "".join(parts) + ". Nothing was simulated, so nothing is promised.", "unsure"
    metric, found = next(iter(plan.quality.items()))
    known = f" from today's {found['old/old']:.1f}" if "old/old" in found else ""
    parts.append(f"; {metric} goes{known} to {found['at the stop']:.1f}")
    kind = "good" if plan.knows_today else "unsure"
    low = plan.lowest.get(metric)
    if low is not None and low["ci95"] is not None:
        least, most = low["ci95"]
        gap = f"{signed(low['against_today'])} points [{signed(least)}, {signed(most)}]"
        if most < 0:
            kind = "unsure"
            parts.append(f", and its lowest point on the way is below today by {gap}")
        else:
            parts.append(f", and its lowest point on the way is {gap} against today")
    return "".join(parts) + ".", kind


def answer_evaluation(asking: str | None, failed: Sequence[str]) -> tuple[str, str]:
    """The answer of an evaluation that no plan was made of yet."""
    if asking is None:
        return (
            "Not known: nothing could be judged without labels, qrels or lookups of both models.",
            "unsure",
        )
    if asking == "old":
        return (
            "On the untouched index no way of asking the new model is as good as today: a plan "
            "says whether filling helps.",
            "bad",
        )
    told = f"From the first minute, ask {WAYS[asking]}"
    if failed:
        return f"{told}; {', '.join(failed)} did not do. A plan says how much to fill.", "unsure"
    return f"{told}. A plan says how much to fill, and what it costs.", "good"


def headline(status: Status, *, moving: bool = False) -> str:
    """Where a migration stands, in words without numbers; `moving` if rows are seen to move."""
    if status.under_way:
        if status.kept:
            return "Finished with both columns kept, to be asked together"
        step = step_of(status)
        if step == "verify" and not status.target:
            return "Every row is lifted, and none is to be filled"
        if step == "verify":
            return "The planned share is filled"
        if step == "finish":
            return "Verified: ready to finish"
        if status.late:
            return "Rows came or changed since all were lifted"
    if status.stage in HALFWAY and not moving:
        return HALFWAY[status.stage]
    if status.finishing:
        return f"{STAGES[status.stage]}; at present {OWN_VECTORS[status.own_vectors]}"
    return STAGES[status.stage]


def step_of(status: Status) -> str | None:
    """The step that the next command takes; None where there is none."""
    words = status.next.split()
    return words[2] if words[:2] == ["crossfade", "migrate"] else None


def command_of(status: Status) -> str:
    """The next command as it can be typed; what else may be done is left to `status`."""
    return status.next.removesuffix(", or rollback")


def promised(plan: PlanRecord, metric: str) -> list[tuple[str, str]]:
    """What a plan says of one metric: a name and a value each."""
    found = plan.quality[metric]
    out = []
    if "old/old" in found:
        out.append(("today", f"{found['old/old']:.1f}"))
    out.append((f"at the stop, {plan.stop:.0%}", f"{found['at the stop']:.1f}"))
    low = plan.lowest.get(metric)
    if low is not None:
        if low["ci95"] is None:
            out.append((f"lowest, at {low['share']:.0%}", f"{low['quality']:.1f}"))
        else:
            least, most = low["ci95"]
            out.append(
                (
                    f"lowest against today, at {low['share']:.0%}",
                    f"{signed(low['against_today'])} [{signed(least)}, {signed(most)}]",
                )
            )
    if metric in plan.alone and plan.knows_today:
        reaches = plan.alone[metric]["reaches"]
        level = "never" if reaches is None else f"from {reaches:.0%}"
        out.append(("new queries alone are level", level))
    out.append(("new model on its own index", f"{found['new/new']:.1f}"))
    return out
