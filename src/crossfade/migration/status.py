"""Where a migration stands, and the command that comes next."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossfade.errors import BadInput
from crossfade.migration.columns import FORWARD, NEW, STATE
from crossfade.migration.journal import OVER, Journal
from crossfade.migration.quality import predicted
from crossfade.stores import Store


@dataclass(frozen=True)
class Status:
    """`old` counts rows that have no shared vector; `late` those among them that came since."""

    store: str
    stage: str
    old_model: str
    new_model: str
    upgrade: str
    upgrade_folder: str
    rows: int
    old: int
    forward: int
    new: int
    late: int
    unusable: int
    share: float
    target: float | None
    rate: dict[str, float]
    seconds_left: float | None
    quality: dict[str, Any] | None
    next: str
    events: list[dict[str, str]]

    def record(self) -> dict[str, Any]:
        return asdict(self)


def status(store: Store, journal: Journal) -> Status:
    """Count the states and read the plan's curve."""
    rows = store.describe().rows
    over = journal.stage in OVER or journal.stage in ("finishing", "rolling back")
    counts = {} if over else store.tally(STATE)
    old, forward, new = (counts.get(key, 0) for key in (None, FORWARD, NEW))
    share = new / rows if rows else 0.0
    lifted = journal.stage in ("forward", "backfilling")
    target = None if journal.backfill is None else journal.backfill.target
    reached = journal.backfill is not None and new >= journal.backfill.goal(rows)
    left = None
    if journal.stage in ("started", "forwarding") and journal.rate.get("forward"):
        left = old / journal.rate["forward"]
    elif target is not None and journal.rate.get("backfill"):
        left = max(0.0, target * rows - new) / journal.rate["backfill"]
    return Status(
        store=store.name,
        stage=journal.stage,
        old_model=journal.old_model,
        new_model=journal.new_model,
        upgrade=journal.upgrade,
        upgrade_folder=journal.upgrade_folder,
        rows=rows,
        old=old,
        forward=forward,
        new=new,
        late=max(0, old - journal.unusable) if lifted else 0,
        unusable=journal.unusable,
        share=share,
        target=target,
        rate=journal.rate,
        seconds_left=left,
        quality=_quality(journal, share) if lifted else None,
        next=next_command(store, journal, late=old - journal.unusable, reached=reached),
        events=[event.model_dump() for event in journal.events],
    )


def next_command(store: Store, journal: Journal, *, late: int = 0, reached: bool = False) -> str:
    """What to type now."""
    place = shlex.quote(store.name).replace("{", "{{").replace("}", "}}")
    command = f"crossfade migrate {{}} {place}"
    match journal.stage:
        case "started" | "forwarding":
            return command.format("forward")
        case "forward" | "backfilling" if late > 0:
            return command.format("forward")
        case "forward":
            return command.format("backfill") + " --plan PLAN --embed EMBEDDER"
        case "backfilling":
            if reached:
                return command.format("verify") + ", then finish"
            return command.format("backfill")
        case "finishing":
            return command.format("finish")
        case "rolling back":
            return command.format("rollback")
        case _:
            return "none: the migration is over"


def _quality(journal: Journal, share: float) -> dict[str, Any] | None:
    if journal.backfill is None:
        return None
    try:
        return asdict(predicted(Path(journal.backfill.plan_folder), share))
    except BadInput:
        # The plan's folder was moved: a status is still a status.
        return None
