"""The first step: check store and upgrade against each other, say what will happen, begin."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossfade.asking import Weights
from crossfade.backfill.plan import Plan
from crossfade.backfill.record import Promises
from crossfade.errors import BadInput, NotCompatible
from crossfade.journal.columns import HASH_LENGTH, UPGRADE, VECTOR, columns
from crossfade.journal.journal import Journal, load_journal, save_journal
from crossfade.journal.space import space_of
from crossfade.migration.checks import (
    check_obstacles,
    check_store,
    check_verdict,
    refuse_duplicates,
)
from crossfade.search.sampling import keep_sample
from crossfade.stores import Description, Store
from crossfade.stores.contract import ROWS
from crossfade.stores.rows import matrix, unusable
from crossfade.upgrade import Upgrade

# State, hash, fingerprint, checksum and revision, with what a row of a table costs anyway.
_BOOKKEEPING_BYTES = 80
# Rows by which it is told how long lifting takes.
_LIFTED = 500


def bytes_per_row(upgrade: Upgrade) -> int:
    """What a migration adds to every row of a store, until it is finished or rolled back."""
    return 4 * upgrade.shared_dim_ + _BOOKKEEPING_BYTES


@dataclass(frozen=True)
class Outlook:
    """What a migration will do and take, before it does anything."""

    store: Description
    old_model: str
    new_model: str
    upgrade: str
    shared_dim: int
    storage_bytes: int
    forward_seconds: float
    backfill: dict[str, Any] | None
    statements: dict[str, list[str]]
    warnings: list[str]

    def record(self) -> dict[str, Any]:
        return asdict(self)


def look_ahead(
    store: Store,
    upgrade: Upgrade,
    *,
    source: str | None,
    evaluation: Path | None,
    plan: Path | None,
    force: bool,
) -> Outlook:
    """Check everything that can be checked without writing; raise where it must not go on."""
    known = load_journal(store)
    if known is not None and not known.over:
        raise BadInput(
            f"a migration to {known.new_model or known.upgrade[:12]} is under way ({known.stage})",
            where=store.name,
            step="go on with it, or end it with: crossfade migrate rollback",
        )
    found = store.describe()
    check_obstacles(store, "start")
    refuse_duplicates(store)
    in_the_way = [o.cause for o in store.obstacles() if not o.final]
    if found.added:
        _check_lost(store, found, upgrade, force=force)
    about_store = check_store(store, found, upgrade, source)
    planned = None if plan is None else Plan.load(plan, upgrade)
    verdict = check_verdict(upgrade, evaluation, plan, planned)
    refusals = in_the_way + about_store.refusals + verdict.refusals
    if refusals and not force:
        raise NotCompatible(
            "; ".join(refusals), where=store.name, step="add --force to migrate all the same"
        )
    forced = [f"forced although {refusal}" for refusal in refusals]
    return Outlook(
        store=found,
        old_model=upgrade.config_.old.model,
        new_model=upgrade.config_.new.model,
        upgrade=upgrade.hash_,
        shared_dim=upgrade.shared_dim_,
        storage_bytes=found.rows * bytes_per_row(upgrade),
        forward_seconds=_seconds(store, upgrade, found.rows),
        backfill=None if planned is None else _backfill(planned, found.rows),
        statements=store.statements(columns(upgrade.shared_dim_)),
        warnings=forced + about_store.warnings + verdict.warnings,
    )


def _check_lost(store: Store, found: Description, upgrade: Upgrade, *, force: bool) -> None:
    """Columns without a journal: a table was copied without it, perhaps. They are taken over only
    if asked for, and only where they are this upgrade's."""
    if not force:
        raise BadInput(
            f"has columns of a migration whose journal is lost: {', '.join(found.added)}",
            where=store.name,
            step="take them over with --force, or drop them with: "
            f"crossfade migrate rollback {shlex.quote(store.name)} --force",
        )
    writers = set(store.tally(UPGRADE)) - {None} if UPGRADE in found.added else set()
    first = next(iter(store.stream([VECTOR], size=1)), None) if VECTOR in found.added else None
    dims = {first.schema.field(VECTOR).type.list_size} if first is not None else set()
    if writers - {upgrade.hash_[:HASH_LENGTH]} or dims - {upgrade.shared_dim_}:
        raise BadInput(
            "has columns of a migration with another upgrade, whose journal is lost",
            where=store.name,
            step=f"drop them with: crossfade migrate rollback {shlex.quote(store.name)} --force",
        )


def begin(
    store: Store, upgrade: Upgrade, folder: Path, seen: Outlook, source: str | None
) -> Journal:
    """Write the journal, then add the columns. From here on new queries work."""
    journal = Journal(
        stage="started",
        upgrade=upgrade.hash_,
        upgrade_folder=str(folder.resolve()),
        old_model=seen.old_model,
        new_model=seen.new_model,
        id=store.id,
        vector=store.vector,
        source=source,
        distance=store.distance,
        shared_dim=upgrade.shared_dim_,
        space=space_of(upgrade),
        planned=None if seen.backfill is None else seen.backfill["share"],
        asking=None if seen.backfill is None else seen.backfill["asking"],
        asked=() if seen.backfill is None else seen.backfill["asked"],
        lift=1.0 if seen.backfill is None else seen.backfill["lift"],
        weights=Weights(**({} if seen.backfill is None else seen.backfill["weights"])),
        alone_from=None if seen.backfill is None else seen.backfill["alone_from"],
        promises=None if seen.backfill is None else Promises(**seen.backfill["promises"]),
    )
    save_journal(store, journal.after(f"started with {seen.store.rows:,} rows"))
    store.add_columns(columns(upgrade.shared_dim_))
    keep_sample(store)
    return journal


def _seconds(store: Store, upgrade: Upgrade, rows: int) -> float:
    """About how long `forward` takes: a batch read and lifted, and as long again to write."""
    stream = iter(store.stream([store.vector], size=min(ROWS, max(1, rows // 2))))
    begin = time.perf_counter()
    batch = next(stream, None)
    first = time.perf_counter() - begin
    # What is done before the first is done once.
    begin = time.perf_counter()
    batch = next(stream, batch)
    read = time.perf_counter() - begin
    if batch is None:
        return 0.0
    lifted = 0.0
    if batch[store.vector].null_count < len(batch):
        old = matrix(batch[store.vector])
        old = old[~unusable(batch[store.vector], old)][:_LIFTED]
        begin = time.perf_counter()
        if len(old):
            upgrade.forward(old)
        lifted = (time.perf_counter() - begin) / max(1, len(old))
    return first + rows * (2 * read / len(batch) + lifted)


def _backfill(plan: Plan, rows: int) -> dict[str, Any]:
    made = plan.record
    return {
        "recommendation": made.recommendation,
        "order": made.order,
        "blend": str(made.how),
        "asking": made.asking,
        "asked": made.asked,
        "lift": made.lift,
        "weights": asdict(made.weights),
        "alone_from": made.alone_from,
        "promises": made.promises.model_dump(),
        "share": made.stop,
        "rows": int(made.stop * rows),
        "predicted_cost": made.costs.get("stop", {}).get("cost"),
    }
