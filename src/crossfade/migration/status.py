"""Where a migration stands, and the command that comes next."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Any

from crossfade.asking import AskedFrom
from crossfade.backfill.plan import Plan
from crossfade.backfill.record import Promises
from crossfade.errors import BadInput
from crossfade.journal.columns import FILLED, LIFTED, OLD, VECTOR, State, by_state, count_states
from crossfade.journal.journal import Journal, whole
from crossfade.journal.late import Missing, look_for_missing
from crossfade.journal.transitions import LIFTING, OVER, allowed, ended, running
from crossfade.migration.quality import predict_quality
from crossfade.migration.workers import WorkerStatus, look_at_workers
from crossfade.stores import StepwiseSwitch, Store
from crossfade.stores.contract import Description, OwnVectors

OWN_VECTORS: dict[OwnVectors, str] = {
    "old": "the application's own vectors are the old ones",
    "new": "the application's own vectors are the new ones",
    "neither": "the application's own vectors are not all old and not all new",
}


@dataclass(frozen=True)
class Status:
    """`old` counts rows that have no shared vector; among them `late` are those that came since all
    were lifted, and `unusable` those that cannot have one. `share` and `target` are of the rows
    that can: what is filled, and what the plan wants filled."""

    store: str
    stage: str
    old_model: str
    new_model: str
    upgrade: str
    upgrade_folder: str
    rows: int
    old: int
    lifted: int
    filled: int
    late: int
    unusable: int
    share: float
    target: float | None
    verified: bool
    asking: str | None
    """How the plan says to ask where so much is filled."""
    asked: AskedFrom
    """From which share on the plan asks in which way, where it is not one throughout."""
    lift: float
    """The share of F(old) in what rows store before they are filled."""
    alone_from: float | None
    """The share from which on, by the plan, new queries alone are not below today's search."""
    promises: Promises | None
    """What the plan says of the way: its worst moment, when new queries suffice, and its end."""
    kept: bool
    """Whether it was finished with the old vectors kept."""
    own_vectors: OwnVectors
    """What the application finds by its own name of them, column, collection or file, by a look at
    the store: `neither` in the midst of a switch that is more than one step."""
    rate: dict[str, float]
    seconds_left: float | None
    spent: float
    """On embedding, in the units of the prices that were given."""
    measured: dict[str, Any] | None
    """Through the store, by the last `verify` that was given queries."""
    quality: dict[str, Any] | None
    workers: list[WorkerStatus]
    """Those that fill it together, and those that did since the last step of another kind."""
    next: str
    events: list[dict[str, str]]

    @property
    def over(self) -> bool:
        """Whether the migration has ended, one way or the other."""
        return self.stage in OVER

    @property
    def lifting(self) -> bool:
        """Whether rows are still to be lifted for the first time."""
        return self.stage in LIFTING

    @property
    def under_way(self) -> bool:
        """Whether every row is lifted, and nothing has begun to end it."""
        return self.stage in allowed("verify")

    @property
    def ending(self) -> bool:
        """Whether a step has begun that ends it, one way or the other."""
        return self.stage in (running("finish"), running("rollback"))

    @property
    def finishing(self) -> bool:
        """Whether a `finish` has begun that drops the old vectors."""
        return self.stage == running("finish")

    @property
    def finished(self) -> bool:
        """Whether it has ended in the new model."""
        return self.stage == ended("finish")

    @property
    def taken_back(self) -> bool:
        """Whether what was written is going, or gone."""
        return self.stage in (running("rollback"), ended("rollback"))

    @property
    def counted_before(self) -> bool:
        """Whether rows by state are those of the moment at which `finish` began."""
        return self.stage in (running("finish"), ended("finish"))

    def record(self) -> dict[str, Any]:
        promises = None if self.promises is None else self.promises.model_dump()
        return asdict(self) | {"promises": promises}


def read_status(store: Store, journal: Journal) -> Status:
    """Count the states and read the plan's curve."""
    described = store.describe()
    rows = described.rows
    counts = _counts(store, journal, rows)
    old, lifted, filled = (counts[state] for state in (OLD, LIFTED, FILLED))
    under_way = journal.allows("verify")
    team = look_at_workers(store)
    missing = look_for_missing(store) if under_way and old else Missing()
    usable = max(0, old + lifted + filled - missing.unusable)
    share = filled / usable if usable else 0.0
    left = None
    if journal.lifting and journal.rate.get("forward"):
        left = old / journal.rate["forward"]
    elif under_way and journal.share is not None and journal.rate.get("backfill"):
        left = max(0.0, journal.share * usable - filled) / journal.rate["backfill"]
    if team is not None and journal.share is not None and team.rate > 0:
        left = max(0.0, journal.share * usable - filled) / team.rate
    return Status(
        store=store.name,
        stage=journal.stage,
        old_model=journal.old_model,
        new_model=journal.new_model,
        upgrade=journal.upgrade,
        upgrade_folder=journal.upgrade_folder,
        rows=rows,
        old=old,
        lifted=lifted,
        filled=filled,
        late=missing.late,
        unusable=missing.unusable,
        share=share,
        target=journal.share,
        verified=journal.verified is not None,
        asking=journal.asking_at(share),
        asked=journal.asked,
        lift=journal.lift,
        alone_from=journal.alone_from,
        promises=journal.promises,
        kept=journal.kept,
        own_vectors=_own_vectors(store, journal, described),
        rate=journal.rate,
        seconds_left=left,
        spent=journal.spent if team is None else team.spent,
        measured=None if journal.measured is None else journal.measured.model_dump(),
        quality=_quality(journal, share) if under_way else None,
        workers=[] if team is None else team.at_work,
        next=next_command(store, journal, late=missing.late, filled=filled, usable=usable),
        events=[event.model_dump() for event in journal.events],
    )


def next_command(
    store: Store, journal: Journal, *, late: int = 0, filled: int = 0, usable: int = 0
) -> str:
    """What to type now; words in capitals are for the reader to fill in."""
    address = shlex.quote(store.name).replace("{", "{{").replace("}", "}}")
    command = f"crossfade migrate {{}} {address}"
    if journal.over:
        return "none: the migration is over"
    if journal.finishing:
        return command.format("finish") + ", or rollback"
    if journal.taken_back:
        return command.format("rollback")
    if journal.lifting or late:
        return command.format("forward")
    if journal.kept:
        return "none: both columns are kept and asked together"
    wanted = journal.share
    if wanted is not None and journal.backfill is not None:
        # Who asked for more than the plan and was stopped is not done.
        wanted = max(wanted, journal.backfill.target)
    if wanted is None or filled < whole(wanted, usable):
        plan = " --plan PLAN" if journal.backfill is None else ""
        return command.format("backfill") + f"{plan} --embed EMBEDDER"
    return command.format("finish" if journal.verified else "verify")


def _own_vectors(store: Store, journal: Journal, described: Description) -> OwnVectors:
    """The journal tells that `finish` has begun; how far it has come, only a look at the store."""
    if not (journal.finishing or journal.finished):
        return "old"
    if isinstance(store, StepwiseSwitch):
        return store.own_vectors(VECTOR)
    return "old" if VECTOR in described.added else "new"


def _counts(store: Store, journal: Journal, rows: int) -> dict[State, int]:
    """Rows by state: as they are, or as they were when it ended."""
    if journal.taken_back:
        return by_state({None: rows})
    if journal.finishing or journal.finished:
        return by_state(journal.counts or {})
    return count_states(store)


def _quality(journal: Journal, share: float) -> dict[str, Any] | None:
    if journal.backfill is None:
        return None
    try:
        return asdict(predict_quality(Plan.load(journal.backfill.plan_folder), share))
    except BadInput:
        # The plan's folder was moved: a status is still a status.
        return None
