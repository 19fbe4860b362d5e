"""Is everything as it should be? Counted, checksummed, recomputed, and searched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossfade.backfill.folder import load_plan
from crossfade.embedders import Embedder, embed_checked
from crossfade.migration.batch import Batch, damaged
from crossfade.migration.columns import FORWARD, HASH_LENGTH, NEW, STATE, SUM, VECTOR
from crossfade.migration.forward import Progress
from crossfade.migration.journal import Journal
from crossfade.migration.order import places_of
from crossfade.migration.quality import predicted
from crossfade.migration.searching import Searcher
from crossfade.migration.through import Queries, measure_through
from crossfade.stores import Id, Store
from crossfade.stores.contract import ROWS
from crossfade.stores.rows import matrix
from crossfade.threads import ahead
from crossfade.upgrade import Upgrade

SAMPLE = 1000
EMBEDDED_SAMPLE = 64
# One product in float32 by another library, in another order of addition.
_CLOSE = 1e-4
# An embedder may run in half precision, or batch by another length.
_SAME_DIRECTION = 0.999


@dataclass(frozen=True)
class Check:
    """One question and its answer."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Verified:
    """All answers; `quality` is there where queries were given."""

    checks: list[Check]
    quality: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def record(self) -> dict[str, Any]:
        return {"passed": self.passed} | asdict(self)


@dataclass
class _Seen:
    rows: int = 0
    ours: int = 0
    new: int = 0
    damaged: list[Id] = field(default_factory=list)
    changed: list[Id] = field(default_factory=list)
    foreign: list[Id] = field(default_factory=list)
    recomputed: int = 0
    wrong: list[Id] = field(default_factory=list)
    sampled_new: list[Id] = field(default_factory=list)


def verify(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    *,
    embedder: Embedder | None = None,
    queries: Queries | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Verified:
    """Look at every row once; recompute a sample; measure `queries` through the store."""
    total = store.describe().rows
    seen = _look(store, upgrade, journal, total, progress, seed)
    without = store.tally(STATE).get(None, 0)
    late = max(0, without - journal.unusable)
    unusable = f", {journal.unusable:,} cannot have one" if journal.unusable else ""
    checks = [
        Check(
            "rows",
            late == 0,
            f"{seen.ours:,} of {total:,} rows have a shared vector{unusable}"
            + (f"; {late:,} are waiting for `forward`" if late else ""),
        ),
        _none("upgrade", seen.foreign, "rows were written by another upgrade"),
        _none("checksums", seen.damaged, "shared vectors differ from their checksums"),
        _none("sources", seen.changed, "rows changed since: run `forward` again"),
        _none(
            "recomputed",
            seen.wrong,
            "shared vectors are not F(old)",
            f"{seen.recomputed:,} rows made again from old are equal",
        ),
    ]
    if embedder is not None and seen.sampled_new:
        checks.append(_embedded(store, upgrade, journal, embedder, seen.sampled_new))
    quality = None
    if queries is not None:
        measured = measure_through(
            store, Searcher(store, upgrade), queries, old_too=True, seed=seed, progress=progress
        )
        quality = {"measured": asdict(measured)}
        if journal.backfill is not None:
            share = seen.new / total if total else 0.0
            quality["predicted"] = asdict(predicted(Path(journal.backfill.plan_folder), share))
        told = ", ".join(
            f"{m} {measured.new[m]:.1f} (old queries on old vectors {measured.old[m]:.1f})"
            for m in measured.new
        )
        checks.append(Check("quality", not measured.worse, f"{measured.queries:,} queries: {told}"))
    return Verified(checks, quality)


def _look(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    total: int,
    progress: Progress | None,
    seed: int,
) -> _Seen:
    seen, rng = _Seen(), np.random.default_rng(seed)
    ours = journal.upgrade[:HASH_LENGTH]
    columns = [*Batch.columns(store, journal.source), VECTOR, SUM]
    for rows in ahead(store.stream(columns, size=ROWS)):
        batch = Batch.of(store, rows, journal.source)
        there = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
        stale = batch.stale(ours)
        shared = matrix(rows[VECTOR])
        sums = np.asarray(rows[SUM].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        ids = np.array(batch.ids, object)
        seen.rows += len(batch)
        seen.ours += int(there.sum())
        seen.new += int(batch.state(NEW).sum())
        seen.damaged += ids[there & damaged(sums, shared)].tolist()
        seen.changed += ids[there & batch.changed].tolist()
        seen.foreign += ids[there & stale & ~batch.changed].tolist()
        picked = rng.random(len(batch)) < SAMPLE / max(total, 1)
        again = there & ~stale & batch.state(FORWARD) & picked
        if again.any():
            off = np.abs(upgrade.forward(batch.old[again]) - shared[again]).max(axis=1)
            seen.recomputed += int(again.sum())
            seen.wrong += ids[again][off > _CLOSE].tolist()
        fresh = there & ~stale & batch.state(NEW)
        room = EMBEDDED_SAMPLE - len(seen.sampled_new)
        seen.sampled_new += rng.permutation(ids[fresh])[: min(room, EMBEDDED_SAMPLE // 4)].tolist()
        if progress is not None:
            progress(seen.rows, total)
    return seen


def _embedded(
    store: Store, upgrade: Upgrade, journal: Journal, embedder: Embedder, ids: list[Id]
) -> Check:
    """Embed some backfilled rows again and see whether the same vectors come out."""
    columns = [*Batch.columns(store, journal.source), VECTOR]
    batch = Batch.of(store, store.read(ids, columns), journal.source)
    texts = None
    if embedder.needs_source:
        if journal.source is None:
            return Check("embedded again", True, "left out: no text column was named at start")
        texts = batch.rows[journal.source].to_pylist()
    new = embed_checked(embedder, batch.ids, texts, upgrade.new_dim_)
    task = journal.backfill
    if task is None:
        return Check("embedded again", True, "left out: the plan of the backfill is not known")
    found = places_of(Path(task.order_file), batch.ids, task.order_rows)
    expected = load_plan(Path(task.plan_folder)).stored(
        upgrade.backward(new),
        upgrade.forward(batch.old),
        np.array([found[key] for key in batch.ids]),
        task.order_rows,
    )
    stored = matrix(batch.rows[VECTOR])
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(stored, axis=1)
    cosines = np.vecdot(expected, stored) / np.maximum(lengths, 1e-30)
    wrong = [key for key, c in zip(batch.ids, cosines, strict=True) if c < _SAME_DIRECTION]
    told = f"{len(batch):,} backfilled rows embedded again are equal"
    return _none("embedded again", wrong, "rows embedded again differ", told)


def _none(name: str, ids: list[Id], problem: str, good: str = "no row differs") -> Check:
    if not ids:
        return Check(name, True, good)
    some = ", ".join(map(repr, ids[:5]))
    return Check(name, False, f"{len(ids):,} {problem} (first ids: {some})")
