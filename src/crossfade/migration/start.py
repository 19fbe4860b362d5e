"""The first step: check store and upgrade against each other, say what will happen, begin."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossfade.backfill.folder import load_plan
from crossfade.errors import BadInput, NotCompatible
from crossfade.migration.checks import check_store, check_verdict, sample_of
from crossfade.migration.columns import columns
from crossfade.migration.journal import OVER, Journal, load_journal, save_journal
from crossfade.stores import Description, Store
from crossfade.upgrade import Upgrade

# State, hash, fingerprint, checksum and revision, with what a row of a table costs anyway.
_BOOKKEEPING_BYTES = 80


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


def outlook(
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
    if known is not None and known.stage not in OVER:
        raise BadInput(
            f"a migration to {known.new_model or known.upgrade[:12]} is under way ({known.stage})",
            where=store.name,
            step="go on with it, or end it with: crossfade migrate rollback",
        )
    found = store.describe()
    if found.added:
        raise BadInput(
            f"has columns of an earlier migration: {', '.join(found.added)}",
            where=store.name,
            step="end it with: crossfade migrate rollback",
        )
    about_store = check_store(store, found, upgrade, source)
    verdict = check_verdict(upgrade, evaluation, plan)
    refusals = about_store.refusals + verdict.refusals
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
        storage_bytes=found.rows * (4 * upgrade.shared_dim_ + _BOOKKEEPING_BYTES),
        forward_seconds=_seconds(store, upgrade, found.rows),
        backfill=None if plan is None else _backfill(plan, upgrade, found.rows),
        statements=store.statements(columns(upgrade.shared_dim_)),
        warnings=forced + about_store.warnings + verdict.warnings,
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
        metric=store.metric,
        shared_dim=upgrade.shared_dim_,
        rows_at_start=seen.store.rows,
    )
    save_journal(store, journal.after(f"started with {seen.store.rows:,} rows"))
    store.add_columns(columns(upgrade.shared_dim_))
    return journal


def _seconds(store: Store, upgrade: Upgrade, rows: int) -> float:
    """About how long `forward` takes: a sample read and lifted, and as long again to write."""
    begin = time.perf_counter()
    batch = next(iter(store.stream([store.vector], size=2000)), None)
    read = time.perf_counter() - begin
    count = max(1, 0 if batch is None else len(batch))
    sample = sample_of(store, rows)[:500]
    begin = time.perf_counter()
    upgrade.forward(sample)
    lifted = (time.perf_counter() - begin) / len(sample)
    return rows * (2 * read / count + lifted)


def _backfill(folder: Path, upgrade: Upgrade, rows: int) -> dict[str, Any]:
    made = load_plan(folder, upgrade).plan
    return {
        "recommendation": made.recommendation,
        "order": made.order,
        "blend": str(made.how),
        "share": made.stop,
        "rows": int(made.stop * rows),
        "predicted_cost": made.costs.get("stop", {}).get("cost"),
    }
