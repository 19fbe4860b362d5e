"""What a migration remembers between commands, kept inside the store it migrates."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from crossfade.errors import BadInput, StoreError
from crossfade.stores import Metric, Store

KEY = "migration"
# The last so many events are kept: enough to see what happened, bounded whatever happens.
EVENTS = 200

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
# Stages in which every row has a shared vector, but for those that came since.
LIFTED: tuple[Stage, ...] = ("forward", "backfilling", "finishing")
OVER: tuple[Stage, ...] = ("finished", "rolled back")


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
    target: float
    embedder: str

    def goal(self, rows: int) -> int:
        """How many of `rows` make up the share: the last one that fits into it whole.

        >>> fields = dict(plan="", plan_folder="", order="", order_file="", order_rows=0, blend="1")
        >>> Backfill(**fields, target=0.97, embedder="").goal(118)
        114
        """
        return math.floor(self.target * rows + 1e-9)


class Journal(BaseModel):
    """The state of a migration; each change of it is written before the act it announces."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[1] = 1
    stage: Stage
    upgrade: str
    upgrade_folder: str
    old_model: str
    new_model: str
    id: str
    vector: str
    source: str | None
    metric: Metric
    shared_dim: int
    rows_at_start: int
    cursor: int | str | None = None
    unusable: int = 0
    first_unusable: list[int | str] = []
    backfill: Backfill | None = None
    rate: dict[str, float] = {}
    spent: float = 0.0
    events: list[Event] = []

    def after(self, what: str | None = None, **changes: Any) -> Journal:
        """The journal with some fields changed and, perhaps, an event added.

        >>> from datetime import datetime
        >>> fields = dict(stage="started", upgrade="ab", upgrade_folder="up", old_model="",
        ...     new_model="", id="id", vector="v", source=None, metric="cosine", shared_dim=3,
        ...     rows_at_start=5)
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
            step="was it written by a newer crossfade?",
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
