"""The table of a migration: its stages, its steps, and what each step leads to.

Everything that asks whether a step is allowed asks this table, and docs/migrate.md draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal[
    "started",
    "forwarding",
    "forward",
    "backfilling",
    "finishing",
    "finished",
    "rolling back",
    "rolled back",
]
Step = Literal["start", "forward", "backfill", "verify", "finish", "rollback"]


@dataclass(frozen=True)
class Transition:
    """A step in some stages: the stage while it runs, and the one it ends in; None is as before."""

    step: Step
    begins: tuple[Stage, ...]
    during: Stage | None
    ends: Stage | None


TRANSITIONS = (
    Transition("start", ("finished", "rolled back"), "started", "started"),
    Transition("forward", ("started", "forwarding"), "forwarding", "forward"),
    # Later it lifts rows that came or changed.
    Transition("forward", ("forward", "backfilling"), None, None),
    Transition("backfill", ("forward", "backfilling"), "backfilling", "backfilling"),
    Transition("verify", ("forward", "backfilling"), None, None),
    Transition("finish", ("forward", "backfilling", "finishing"), "finishing", "finished"),
    Transition("finish", ("finished",), None, None),
    Transition(
        "rollback",
        ("started", "forwarding", "forward", "backfilling", "finishing", "rolling back"),
        "rolling back",
        "rolled back",
    ),
    Transition("rollback", ("rolled back",), None, None),
)
# Stages in which every row has a shared vector, but for those that came since.
LIFTED: tuple[Stage, ...] = ("forward", "backfilling", "finishing")
# Stages in which rows are lifted for the first time.
LIFTING: tuple[Stage, ...] = ("started", "forwarding")
OVER: tuple[Stage, ...] = ("finished", "rolled back")
# What a store is said not to be where a step is not allowed.
_DONE: dict[Step, str] = {
    "start": "started",
    "forward": "lifted",
    "backfill": "backfilled",
    "verify": "verified",
    "finish": "finished",
    "rollback": "rolled back",
}


def allowed(step: Step) -> tuple[Stage, ...]:
    """The stages in which a step may be taken.

    >>> allowed("verify")
    ('forward', 'backfilling')
    """
    return tuple(stage for one in TRANSITIONS if one.step == step for stage in one.begins)


def running(step: Step) -> Stage | None:
    """The stage that a step is in until it ends; None where it leaves none of its own.

    >>> running("finish"), running("verify")
    ('finishing', None)
    """
    found = (one.during for one in TRANSITIONS if one.step == step and one.during != one.ends)
    return next(found, None)


def ended(step: Step) -> Stage | None:
    """The stage that a step leads to; None where it leads nowhere.

    >>> ended("finish"), ended("verify")
    ('finished', None)
    """
    return next((one.ends for one in TRANSITIONS if one.step == step and one.ends), None)


def refusal(step: Step, stage: Stage) -> str:
    """
    >>> refusal("backfill", "started")
    "cannot be backfilled in the stage 'started'"
    """
    return f"cannot be {_DONE[step]} in the stage {stage!r}"


def drawn() -> str:
    """The table as docs/ shows it."""
    lines = ["| step | in the stages | while it runs | leads to |", "|---|---|---|---|"]
    for one in TRANSITIONS:
        stages = "none, " * (one.step == "start") + ", ".join(one.begins)
        cells = (f"`{one.step}`", stages, one.during or "as before", one.ends or "as before")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
