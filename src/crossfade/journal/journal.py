"""What a migration remembers between commands, kept inside the store it migrates."""

from __future__ import annotations

import json
import math
import secrets
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from crossfade.asking import DEFAULT, AskedFrom, Asking, Weights, asking_at
from crossfade.backfill.record import Promises
from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.journal.transitions import (
    LIFTED,
    LIFTING,
    OVER,
    Stage,
    Step,
    allowed,
    ended,
    refusal,
    running,
)
from crossfade.stores import Store

KEY = "migration"
# The last so many events are kept: enough to see what happened, bounded whatever happens.
EVENTS = 200


def whole(share: float, rows: int) -> int:
    """How many of `rows` make up a share: the last one that fits into it whole."""
    return math.floor(share * rows + 1e-9)


class Event(BaseModel):
    """Something that happened, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at: str
    what: str


class Backfill(BaseModel):
    """The backfill that is under way."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    plan: str
    plan_folder: str
    order: str
    order_file: str
    order_rows: int
    blend: str
    planned: float
    """The share that the plan stops at; `target` is what was asked for last."""
    target: float
    embedder: str

    def goal(self, rows: int) -> int:
        """How many of `rows` make up the share: the last one that fits into it whole.

        >>> fields = dict(plan="", plan_folder="", order="", order_file="", order_rows=0, blend="1")
        >>> Backfill(**fields, planned=0.97, target=0.97, embedder="").goal(118)
        114
        """
        return whole(self.target, rows)


class Proof(BaseModel):
    """A `verify` that passed: of which state of the store, where it can tell its states apart."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at: str
    version: str | None


class LiveQuality(BaseModel):
    """What a `verify` has measured through the store, in percent: new queries, old ones, and the
    95 % interval of their difference; `share` of the rows were filled then."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at: str
    share: float
    queries: int
    new: dict[str, float]
    old: dict[str, float]
    difference: dict[str, tuple[float, float]]


class Journal(BaseModel):
    """The state of a migration; each change of it is written before the act it announces."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[2] = 2
    migration: str = Field(default_factory=lambda: secrets.token_hex(8))
    """Tells this migration from all others, wherever its store is and was."""
    stage: Stage
    upgrade: str
    upgrade_folder: str
    old_model: str
    new_model: str
    id: str
    vector: str
    source: str | None
    distance: Distance = Field(validation_alias=AliasChoices("distance", "metric"))
    """`metric` in journals of before."""
    shared_dim: int
    space: Literal["new", "shared"] = "shared"
    """The coordinates in which the shared column is written."""
    asking: Asking | None = None
    """How the plan says to ask; None without one, and then both models are, where both can be."""
    asked: AskedFrom = ()
    """From which share on in which way, where the plan does not ask in one way throughout."""
    lift: float = 1.0
    """The share of F(old) in what a row stores before it is filled; 0 is the old vector as is."""
    weights: Weights = DEFAULT
    """What each voice counts where both models are asked."""
    alone_from: float | None = None
    """The share from which on, by the plan, new queries alone are not below today's search."""
    promises: Promises | None = None
    """What the plan says of the way."""
    kept: bool = False
    """Whether it was finished with the old vectors kept, to go on asking both."""
    planned: float | None = None
    """The share of the plan that was named at start; once there is a `backfill`, its own counts."""
    cursor: int | str | None = None
    verified: Proof | None = None
    """None once anything was written since."""
    measured: LiveQuality | None = None
    """By the last `verify` that was given queries."""
    counts: dict[str, int] | None = None
    """Rows by state when `finish` began: afterwards the store does not know any more."""
    backfill: Backfill | None = None
    rate: dict[str, float] = {}
    spent: float = 0.0
    events: list[Event] = []

    @property
    def share(self) -> float | None:
        """How much of the gallery the plan wants filled; None if no plan is known."""
        return self.planned if self.backfill is None else self.backfill.planned

    def asking_at(self, share: float) -> Asking | None:
        """How the plan says to ask where this share is filled; None without a plan."""
        return asking_at(self.asked, share) if self.asked else self.asking

    @property
    def lifted(self) -> bool:
        """Whether every row has a shared vector, but for those that came since."""
        return self.stage in LIFTED

    @property
    def lifting(self) -> bool:
        """Whether rows are still to be lifted for the first time."""
        return self.stage in LIFTING

    @property
    def over(self) -> bool:
        """Whether the migration has ended, one way or the other."""
        return self.stage in OVER

    @property
    def finishing(self) -> bool:
        """Whether the columns are changing places."""
        return self.within("finish")

    @property
    def finished(self) -> bool:
        """Whether the application's own column holds what was the shared one."""
        return self.after_step("finish")

    @property
    def taken_back(self) -> bool:
        """Whether what was written is going, or gone: the old vectors are all there is to ask."""
        return self.within("rollback") or self.after_step("rollback")

    def allows(self, step: Step) -> bool:
        """Whether `step` may be taken in this stage."""
        return self.stage in allowed(step)

    def within(self, step: Step) -> bool:
        """Whether `step` has begun and not come to its end, killed perhaps."""
        return self.stage == running(step)

    def after_step(self, step: Step) -> bool:
        """Whether `step` has come to its end, and no other has begun."""
        return self.stage == ended(step)

    def require(self, step: Step, where: object) -> None:
        """Raise unless `step` may be taken in this stage of the store at `where`."""
        if self.allows(step):
            return
        raise BadInput(
            refusal(step, self.stage),
            where=where,
            step="run: crossfade migrate forward"
            if self.lifting
            else "see: crossfade migrate status",
        )

    def after(self, what: str | None = None, **changes: Any) -> Journal:
        """The journal with some fields changed and, perhaps, an event added.

        >>> from datetime import datetime
        >>> fields = dict(stage="started", upgrade="ab", upgrade_folder="up", old_model="",
        ...     new_model="", id="id", vector="v", source=None, distance="cosine", shared_dim=3)
        >>> Journal(**fields).after("all rows lifted", stage="forward").events[-1].what
        'all rows lifted'
        """
        if what is not None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            changes["events"] = [*self.events, Event(at=now, what=what)][-EVENTS:]
        return self.model_copy(update=changes)


def load_journal(store: Store) -> Journal | None:
    """The journal of the migration this store is in or was in; None if there never was one."""
    text = store.get(KEY)
    return None if text is None else read_journal(text, store.name)


def read_journal(text: str, where: object) -> Journal:
    """A journal from what the store at `where` keeps."""
    try:
        return Journal.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"its migration journal is damaged ({str(error).splitlines()[0]})",
            where=where,
            step="was it written by another crossfade? "
            "`crossfade migrate rollback STORE --force` drops what that one added",
        ) from None


def save_journal(store: Store, journal: Journal) -> Journal:
    """Write it, durably, before what it announces is done."""
    store.put(KEY, json.dumps(journal.model_dump(), ensure_ascii=False))
    return journal


def need_journal(store: Store) -> Journal:
    """The journal of the migration under way."""
    found = load_journal(store)
    if found is None:
        raise BadInput(
            "no migration was started",
            where=store.name,
            step="run: crossfade migrate start STORE UPGRADE",
        )
    return found
