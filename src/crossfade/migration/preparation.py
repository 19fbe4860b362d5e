"""Before a backfill: what is asked for, checked against the plan, the store and the embedder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crossfade.backfill.plan import Plan
from crossfade.backfill.unplanned import unplanned
from crossfade.embedders import Embedder
from crossfade.errors import BadInput
from crossfade.journal.journal import Backfill, Journal
from crossfade.migration.checks import refuse_duplicates
from crossfade.migration.forward import Progress
from crossfade.migration.order import PlanFolder, find_order, hash_plan, read_ids
from crossfade.remote import to_path
from crossfade.stores import Store
from crossfade.upgrade import Upgrade

# A store writes a few large batches with less work than many small ones, and searches beside it
# are the slower the more it works.
BATCH = 4096


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for; None is what the plan says."""

    plan: Path | None = None
    source: str | None = None
    share: float | None = None
    items: int | None = None
    labels: str | None = None
    priority: str | None = None
    batch: int = BATCH
    processors: float = 1.0
    """The share of this machine that reading and writing may take, not counting the model."""


@dataclass(frozen=True)
class Prepared:
    """A backfill that may begin: the journal with what was decided, and the plan as it was read."""

    journal: Journal
    plan: Plan
    task: Backfill


def prepare(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    embedder: Embedder,
    wanted: Wanted,
    progress: Progress | None = None,
) -> Prepared:
    """Check plan, order and embedder against the migration."""
    journal.require("backfill", store.name)
    folder = wanted.plan
    if folder is None and journal.backfill is not None:
        folder = to_path(journal.backfill.plan_folder)
    if folder is None:
        if wanted.share is None:
            raise BadInput(
                "which plan?",
                where=store.name,
                step="give --plan PLAN, or --share to fill at random without one",
            )
        folder = unplanned(upgrade, to_path(journal.upgrade_folder), wanted.share)
    found = hash_plan(folder)
    task = journal.backfill
    if task is not None and found != task.plan and str(folder.resolve()) == task.plan_folder:
        raise BadInput(
            "has changed since the backfill began",
            where=folder,
            step="restore it, or name another plan to go on with: --plan PLAN",
        )
    planned = PlanFolder(folder, found, Plan.load(folder, upgrade))
    made = planned.plan.record
    if not made.how.plain and "none" in (
        upgrade.config_.old.normalization,
        upgrade.config_.new.normalization,
    ):
        raise BadInput(
            f"a blend of {made.how} makes unit vectors, and this upgrade keeps lengths",
            where=folder,
            step="plan with --blend 1",
        )
    check_source(store, journal, embedder, wanted)
    if not 0 < wanted.processors <= 1:
        raise BadInput(f"a share of {wanted.processors} of the processors", step="use 0.01 to 1")
    if wanted.share is not None and not 0 <= wanted.share <= 1:
        raise BadInput(f"a share of {wanted.share}", step="use a number from 0 to 1")
    refuse_duplicates(store)
    order = find_order(
        store,
        upgrade,
        planned,
        journal,
        labels=wanted.labels,
        priority=wanted.priority,
        progress=progress,
    )
    differs = None
    if made.lift != journal.lift:
        # They were lifted before this plan was named: what they store is not as in its curve.
        differs = (
            f"the plan has rows store {made.lift:g} of F(old) before they are filled, and they "
            f"store {journal.lift:g}: name it at start to have them so"
        )
    task = Backfill(
        plan=found,
        plan_folder=str(folder.resolve()),
        order=made.order,
        order_file=str(order.resolve()),
        order_rows=sum(map(len, read_ids(order))),
        blend=str(made.how),
        planned=made.stop,
        target=made.stop if wanted.share is None else wanted.share,
        embedder=embedder.name,
    )
    after = journal.after(
        differs,
        asking=made.asking,
        asked=made.asked,
        weights=made.weights,
        alone_from=made.alone_from,
        promises=made.promises,
        backfill=task,
        # From here on a change of the text is seen, whoever named its column.
        source=journal.source or wanted.source,
    )
    return Prepared(after, planned.plan, task)


def check_source(store: Store, journal: Journal, embedder: Embedder, wanted: Wanted) -> None:
    """Refuse where the embedder wants text and nobody has said where it is, or in two places."""
    if None not in (journal.source, wanted.source) and journal.source != wanted.source:
        # Rows that changed are told by the column that was named first.
        raise BadInput(
            f"its text is in {journal.source!r}, as was said before, and not in {wanted.source!r}",
            where=store.name,
            step=f"leave --source out, or roll back and name it at start: --source {wanted.source}",
        )
    named = journal.source or wanted.source
    there = store.describe().columns
    if named is not None and named not in there:
        raise BadInput(
            f"has no column {named!r}",
            where=store.name,
            step=f"name the text column with --source: it has {', '.join(there)}",
        )
    if embedder.needs_source and named is None:
        raise BadInput(
            f"{embedder.name} needs the items' text",
            where=store.name,
            step="name its column with --source",
        )
