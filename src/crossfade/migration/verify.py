"""Is everything as it should be? Counted, checksummed, recomputed, and searched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.plan import Plan
from crossfade.embedders import Embedder, embed_checked
from crossfade.journal.columns import FILLED, HASH_LENGTH, LIFTED, SUM, VECTOR
from crossfade.journal.journal import Journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch, damaged
from crossfade.migration.forward import Progress
from crossfade.migration.live_quality import Queries, measure_live
from crossfade.migration.order import find_places
from crossfade.migration.quality import predict_quality
from crossfade.remote import to_path
from crossfade.search.searcher import Searcher
from crossfade.stores import Id, Store
from crossfade.stores.contract import ROWS
from crossfade.stores.rows import matrix
from crossfade.threads import ahead
from crossfade.upgrade import Upgrade

SAMPLE = 1000
_NAMED = 5
EMBEDDED_SAMPLE = 64
# One product in float32 by another library, in another order of addition.
_CLOSE = 1e-4
# An embedder may run in half precision, or batch by another length.
_SAME_DIRECTION = 0.999


@dataclass(frozen=True)
class Check:
    """One question and its answer; `passed` is None where it was left out."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class Verified:
    """All answers; `quality` is there where queries were given."""

    checks: list[Check]
    quality: dict[str, Any] | None = None
    share: float = 0.0
    """Of the rows that are filled."""
    unkept: str | None = None
    """Why the answer was not written down for `finish`; None where it was."""

    @property
    def passed(self) -> bool:
        """Whether no check failed; one that was left out says nothing."""
        return all(check.passed is not False for check in self.checks)

    @property
    def proves(self) -> bool:
        """Whether `finish` takes it as proof: it passed, and that is written down."""
        return self.passed and self.unkept is None

    def record(self) -> dict[str, Any]:
        return {"passed": self.passed, "proves": self.proves} | asdict(self)


@dataclass
class Ids:
    """How many rows something is the matter with, and the first few of them."""

    count: int = 0
    first: list[Id] = field(default_factory=list)

    @classmethod
    def of(cls, ids: list[Id]) -> Ids:
        return cls(len(ids), ids[:_NAMED])

    def add(self, some: NDArray[Any]) -> None:
        self.count += len(some)
        self.first += some[: _NAMED - len(self.first)].tolist()


@dataclass
class Seen:
    """What a look at every row has found."""

    rows: int = 0
    ours: int = 0
    filled: int = 0
    unusable: int = 0
    late: Ids = field(default_factory=Ids)
    damaged: Ids = field(default_factory=Ids)
    changed: Ids = field(default_factory=Ids)
    foreign: Ids = field(default_factory=Ids)
    twice: Ids = field(default_factory=Ids)
    strange: list[str] = field(default_factory=list)
    """What a store has found to be the matter with rows that it does not show."""
    recomputed: int = 0
    wrong: Ids = field(default_factory=Ids)
    sampled_new: list[Id] = field(default_factory=list)

    def checks(self) -> list[Check]:
        without = f", {self.unusable:,} cannot have one" if self.unusable else ""
        return [
            _none(
                "rows",
                self.late,
                "rows have no shared vector yet: run `forward` again",
                f"{self.ours:,} of {self.rows:,} rows have a shared vector{without}",
            ),
            self._ids(),
            _none("upgrade", self.foreign, "rows were written by another upgrade"),
            _none("checksums", self.damaged, "shared vectors differ from their checksums"),
            _none("sources", self.changed, "rows changed since: run `forward` again"),
            _none(
                "recomputed",
                self.wrong,
                "shared vectors are not F(old)",
                f"{self.recomputed:,} rows made again from old are equal",
            ),
        ]

    def _ids(self) -> Check:
        if self.strange:
            return Check("ids", False, "; ".join(self.strange))
        return _none("ids", self.twice, "ids are those of several rows", "each is of one row")


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
    seen = look(store, upgrade, journal, total, progress, seed)
    plan = None
    if journal.backfill is not None and (embedder is not None or queries is not None):
        plan = Plan.load(journal.backfill.plan_folder)
    checks = [*seen.checks(), _embedded(store, upgrade, journal, plan, embedder, seen.sampled_new)]
    share = seen.filled / seen.rows if seen.rows else 0.0
    if queries is None:
        checks.append(Check("quality", None, "left out: no queries were given"))
        return Verified(checks, share=share)
    measured = measure_live(
        store, Searcher(store, upgrade), queries, old_too=True, seed=seed, progress=progress
    )
    quality: dict[str, Any] = {"measured": asdict(measured)}
    if plan is not None:
        quality["predicted"] = asdict(predict_quality(plan, share))
    found = ", ".join(
        f"{m} {measured.new[m]:.1f} (old queries on old vectors {measured.old[m]:.1f})"
        for m in measured.new
    )
    checks.append(Check("quality", not measured.worse, f"{measured.queries:,} queries: {found}"))
    return Verified(checks, quality, share)


def look(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    total: int,
    progress: Progress | None = None,
    seed: int = 0,
) -> Seen:
    """Every row, once: is its shared vector there, whole, ours, and of what the row is now?"""
    seen, rng = Seen(twice=Ids.of(store.duplicates())), np.random.default_rng(seed)
    seen.strange = [found.cause for found in store.obstacles() if found.rows]
    ours, column = (
        journal.upgrade[:HASH_LENGTH],
        SharedColumn.of(upgrade, journal.space, journal.lift),
    )
    columns = [*Batch.columns(store, journal.source), VECTOR, SUM]
    for rows in ahead(store.stream(columns, size=ROWS)):
        batch = Batch.of(store, rows, journal.source)
        there = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
        stale, changed = batch.stale(ours), batch.changed | batch.emptied
        shared = matrix(rows[VECTOR])
        sums = np.asarray(rows[SUM].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        ids = np.array(batch.ids, object)
        seen.rows += len(batch)
        seen.ours += int(there.sum())
        seen.filled += int(batch.state(FILLED).sum())
        seen.unusable += int((~batch.known & batch.unusable).sum())
        seen.late.add(ids[batch.late])
        # A row that says it has a vector, and has none, is damaged too.
        seen.damaged.add(ids[(there & damaged(sums, shared)) | (batch.known & ~there)])
        seen.changed.add(ids[there & changed])
        seen.foreign.add(ids[there & stale & ~changed])
        picked = rng.random(len(batch)) < SAMPLE / max(total, 1)
        again = there & ~stale & ~changed & batch.state(LIFTED) & picked
        if again.any():
            off = np.abs(column.lift(batch.old[again]) - shared[again]).max(axis=1)
            seen.recomputed += int(again.sum())
            seen.wrong.add(ids[again][off > _CLOSE])
        fresh = there & ~stale & batch.state(FILLED)
        room = EMBEDDED_SAMPLE - len(seen.sampled_new)
        seen.sampled_new += rng.permutation(ids[fresh])[: min(room, EMBEDDED_SAMPLE // 4)].tolist()
        if progress is not None:
            progress(seen.rows, total)
    return seen


def _embedded(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    plan: Plan | None,
    embedder: Embedder | None,
    ids: list[Id],
) -> Check:
    """Embed some backfilled rows again and see whether the same vectors come out."""
    task, source = journal.backfill, journal.source
    why = None
    if embedder is None:
        why = "no embedder was given"
    elif not ids or task is None:
        why = "no row is backfilled"
    elif embedder.needs_source and source is None:
        why = "no text column was named at start"
    if why is not None or embedder is None or task is None or plan is None:
        return Check("embedded again", None, f"left out: {why}")
    batch = Batch.of(store, store.read(ids, [*Batch.columns(store, source), VECTOR]), source)
    texts = batch.rows[source].to_pylist() if embedder.needs_source else None
    new = embed_checked(embedder, batch.ids, texts, upgrade.new_dim_)
    found = find_places(to_path(task.order_file), batch.ids, task.order_rows)
    places = np.array([found[key] for key in batch.ids])
    column = SharedColumn.of(upgrade, journal.space, journal.lift)
    expected = column.fill(plan, new, batch.old, places, task.order_rows)
    stored = matrix(batch.rows[VECTOR])
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(stored, axis=1)
    cosines = np.vecdot(expected, stored) / np.maximum(lengths, 1e-30)
    wrong = [key for key, c in zip(batch.ids, cosines, strict=True) if c < _SAME_DIRECTION]
    good = f"{len(batch):,} backfilled rows embedded again are equal"
    return _none("embedded again", Ids.of(wrong), "rows embedded again differ", good)


def _none(name: str, ids: Ids, problem: str, good: str = "no row differs") -> Check:
    if not ids.count:
        return Check(name, True, good)
    some = ", ".join(map(repr, ids.first))
    return Check(name, False, f"{ids.count:,} {problem} (first ids: {some})")
