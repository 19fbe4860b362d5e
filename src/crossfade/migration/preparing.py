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
from crossfade.migration.order import ids_of, order_of, plan_hash
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


def prepare(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    embedder: Embedder,
    wanted: Wanted,
    progress: Progress | None = None,
) -> Journal:
    """Check plan, order and embedder against the migration; the journal with what was decided."""
    journal.require("backfill", store.name)
    folder = wanted.plan
    if folder is None and journal.backfill is not None:
        folder = Path(journal.backfill.plan_folder)
    if folder is None:
        if wanted.share is None:
            raise BadInput(
                "which plan?",
                where=store.name,
                step="give --plan PLAN, or --share to fill at random without one",
            )
        folder = unplanned(upgrade, Path(journal.upgrade_folder), wanted.share)
    found = plan_hash(folder)
    task = journal.backfill
    if task is not None and found != task.plan and str(folder.resolve()) == task.plan_folder:
        raise BadInput(
            "has changed since the backfill began",
            where=folder,
            step="restore it, or name another plan to go on with: --plan PLAN",
        )
    plan = Plan.load(folder, upgrade)
    made = plan.record
    if not made.how.plain and "none" in (
        upgrade.config_.old.normalization,
        upgrade.config_.new.normalization,
    ):
        raise BadInput(
            f"a blend of {made.how} makes unit vectors, and this upgrade keeps lengths",
            where=folder,
            step="plan with --blend 1",
        )
    if embedder.needs_source and journal.source is None and wanted.source is None:
        raise BadInput(
            f"{embedder.name} needs the items' text",
            where=store.name,
            step="name its column with --source",
        )
    if not 0 < wanted.processors <= 1:
        raise BadInput(f"a share of {wanted.processors} of the processors", step="use 0.01 to 1")
    if wanted.share is not None and not 0 <= wanted.share <= 1:
        raise BadInput(f"a share of {wanted.share}", step="use a number from 0 to 1")
    refuse_duplicates(store)
    order = order_of(
        store,
        upgrade,
        plan,
        folder,
        journal,
        labels=wanted.labels,
        priority=wanted.priority,
        progress=progress,
    )
    return journal.after(
        asking=made.asking,
        weights=made.weights,
        alone_from=made.alone_from,
        backfill=Backfill(
            plan=found,
            plan_folder=str(folder.resolve()),
            order=made.order,
            order_file=str(order.resolve()),
            order_rows=sum(map(len, ids_of(order))),
            blend=str(made.how),
            planned=made.stop,
            target=made.stop if wanted.share is None else wanted.share,
            embedder=embedder.name,
        ),
    )
