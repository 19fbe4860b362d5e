"""The upgrade, step by step, with the calls a program makes and the commands that do the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.planning import plan
from crossfade.backfill.record import PlanRecord
from crossfade.compatibility import Compatibility, Held, evaluate
from crossfade.demo.folder import UPGRADE
from crossfade.demo.texts.data import NEW_MODEL, OLD_MODEL, Texts, embed_new, load_texts
from crossfade.demo.texts.quality import MRR, Application, Stage, ask, today, wanted_ids
from crossfade.embedders import CallableEmbedder
from crossfade.errors import MissingExtra
from crossfade.files import replacing
from crossfade.files.arrow import to_arrow
from crossfade.migration import Migration
from crossfade.pairs import Pairs
from crossfade.stores import open_store
from crossfade.upgrade import Upgrade

# Called with what is being done, how much of it is done, and how much there is.
Report = Callable[[str, int, int], None]

BEFORE, TABLE = "texts.lance", "upgraded.lance"
PAIRS, SAMPLED, HELD, LOOKUPS, EVALUATION, PLAN = (
    "pairs.npz",
    "sampled.npz",
    "held.npz",
    "lookups.npz",
    "evaluation.json",
    "plan",
)
PAIRED = 600
SHARES = (0.25, 0.5, 0.75, 1.0)
EMBEDDER = "crossfade.demo.texts:embed_new"


@dataclass(frozen=True)
class Step:
    """What was done, what came of it, and the command lines that do it, where there are any."""

    name: str
    found: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Story:
    """What the demo did and measured."""

    seed: int
    rows: int
    planned_with: int
    asked: int
    evaluation: Compatibility
    plan: PlanRecord
    steps: list[Step]
    stages: list[Stage]
    answered: int
    failures: list[str]
    seconds: float

    def record(self) -> dict[str, Any]:
        """What `quality.json` holds; percentages."""
        return {
            "seed": self.seed,
            "rows": {"table": self.rows, "pairs": PAIRED},
            "lookups": {"planned_with": self.planned_with, "asked": self.asked},
            "models": {"old": OLD_MODEL, "new": NEW_MODEL},
            "stages": [
                {
                    "name": stage.name,
                    "filled": stage.filled,
                    "quality": {way: found.means() for way, found in stage.quality.items()},
                }
                for stage in self.stages
            ],
            "steps": [
                {"name": step.name, "found": step.found, "commands": list(step.commands)}
                for step in self.steps
            ],
            "searches_meanwhile": {"answered": self.answered, "failed": self.failures},
            "seconds": round(self.seconds, 1),
        }


@dataclass
class _Run:
    """The demo as far as it has come."""

    folder: Path
    texts: Texts
    seed: int
    report: Report
    steps: list[Step] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

    def step(self, name: str, found: str, *commands: str) -> None:
        self.steps.append(Step(name, found, commands))

    def stage(self, name: str, filled: float, upgrade: Upgrade) -> None:
        report = partial(self.report, f"lookups: {name}")
        address = str(self.folder / TABLE)
        self.stages.append(Stage(name, filled, ask(address, upgrade, self.texts, report)))


def check_extras() -> None:
    """Say what is not installed, before the work."""
    for module, package in (("lance", "pylance"), ("numba", "numba"), ("matplotlib", "matplotlib")):
        if find_spec(module) is None:
            raise MissingExtra(package, extra="demo", need="the demo")


def run_story(
    folder: Path, seed: int = 0, report: Report = lambda what, done, total: None
) -> Story:
    """Upgrade a table in `folder`, empty; the same seed gives the same story."""
    check_extras()
    begin = time.monotonic()
    run = _Run(folder, load_texts(), seed, report)
    _write_tables(run)
    fitted = _sample(run)
    upgrade = _fit(run, fitted)
    held = _hold_out(run, fitted)
    evaluation = _evaluate(run, upgrade, held)
    planned = _plan(run, upgrade, held)
    application = _migrate(run, upgrade)
    return Story(
        seed=seed,
        rows=len(run.texts),
        planned_with=len(run.texts.planned_with),
        asked=len(run.texts.asked),
        evaluation=evaluation,
        plan=planned,
        steps=run.steps,
        stages=run.stages,
        answered=application.answered,
        failures=application.failures,
        seconds=time.monotonic() - begin,
    )


def _write_tables(run: _Run) -> None:
    """The table as it is today, twice: one to upgrade, one for the reader to do it again."""
    import lance
    import pyarrow as pa

    texts = run.texts
    table = pa.table({"id": texts.ids, "text": texts.texts, "vector": to_arrow(texts.vectors.old)})
    for name in (BEFORE, TABLE):
        lance.write_dataset(table, run.folder / name)
    store = open_store(run.folder / TABLE)
    try:
        run.stages.append(Stage("today", 0.0, {"old": today(store, texts)}))
    finally:
        store.close()


def _sample(run: _Run) -> NDArray[np.int64]:
    """Rows of the table with the new model's vectors beside the old; none that a lookup wants."""
    texts, folder = run.texts, run.folder
    unwanted = np.setdiff1d(np.arange(len(texts)), texts.lookups.wanted)
    drawn = np.random.default_rng(run.seed).choice(unwanted, PAIRED, replace=False)
    drawn = np.sort(drawn)
    ids = [texts.ids[row] for row in drawn]
    store = open_store(folder / TABLE)
    try:
        rows = store.read(ids, ["text", "vector"])
    finally:
        store.close()
    old = np.stack([np.asarray(one, np.float32) for one in rows["vector"].to_pylist()])
    _save(folder / PAIRS, ids=np.array(ids), old=old, new=embed_new(rows["text"].to_pylist()))
    run.step(
        "pairs",
        f"{PAIRED} rows of the table embedded by the new model too, none that a lookup wants: "
        f"{PAIRS} (the command draws its own)",
        f"crossfade pairs {BEFORE} --embed {EMBEDDER} --source text --rows {PAIRED} --held 100 "
        f"--lookups 0 --seed {run.seed} -o {SAMPLED}",
    )
    return drawn


def _fit(run: _Run, fitted: NDArray[np.int64]) -> Upgrade:
    """Both maps in closed form: no epoch, no torch, the same every time."""
    run.report("fitting", 0, 1)
    upgrade = Upgrade(
        solver="closed_form", seed=run.seed, old_model=OLD_MODEL, new_model=NEW_MODEL
    ).fit(Pairs.open(run.folder / PAIRS))
    upgrade.save(run.folder / UPGRADE, overwrite=True)
    run.report("fitting", 1, 1)
    run.step(
        "fit",
        f"B and F learned from these {len(fitted)} pairs: {UPGRADE}",
        f"crossfade fit {PAIRS} -o {UPGRADE} --solver closed_form --seed {run.seed} "
        f"--old-model {OLD_MODEL} --new-model {NEW_MODEL} --overwrite",
    )
    return upgrade


def _hold_out(run: _Run, fitted: NDArray[np.int64]) -> Held:
    """Documents the fit has not seen, and lookups among them, as files and as they are used."""
    texts, folder = run.texts, run.folder
    rows = np.setdiff1d(np.arange(len(texts)), fitted)
    documents, lookups = texts.vectors.rows(rows), texts.planned_with
    qrels = np.stack([np.arange(len(lookups)), np.searchsorted(rows, lookups.wanted)], axis=1)
    _save(
        folder / HELD,
        old=documents.old,
        new=documents.new,
        old_queries=lookups.vectors.old,
        new_queries=lookups.vectors.new,
        qrels=qrels,
    )
    asked = texts.asked
    _save(
        folder / LOOKUPS,
        old=asked.vectors.old,
        new=asked.vectors.new,
        labels=np.array(wanted_ids(texts, asked)),
    )
    return Held.of(
        Pairs.from_arrays(documents.old, documents.new, name=HELD),
        Pairs.from_arrays(lookups.vectors.old, lookups.vectors.new, name=HELD),
        qrels=qrels,
    )


def _evaluate(run: _Run, upgrade: Upgrade, held: Held) -> Compatibility:
    """What each way of asking is worth on the table as it is, before it is touched."""
    found = evaluate(
        upgrade,
        held,
        metrics=[MRR],
        required=["both/old"],
        seed=run.seed,
        progress=lambda case, done, total: run.report("evaluating", done, total),
    )
    with replacing(run.folder / EVALUATION, overwrite=True) as temporary:
        text = json.dumps(found.record(), indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    means = {case: found.cases[case].mean(MRR) for case in ("old/old", "B(new)/old", "both/old")}
    run.step(
        "evaluate",
        f"{held.queries} lookups on the table untouched: {means['old/old']:.1f} today, "
        f"{means['B(new)/old']:.1f} with new queries alone, {means['both/old']:.1f} with both "
        f"({MRR})",
        f"crossfade evaluate {UPGRADE} {HELD} --metric {MRR} --require both/old "
        f"--seed {run.seed} --json {EVALUATION}",
    )
    return found


def _plan(run: _Run, upgrade: Upgrade, held: Held) -> PlanRecord:
    """How to ask, whom to embed first and where to stop, by simulation on the same lookups."""
    rows = len(run.texts)
    made = plan(
        upgrade,
        held,
        optimize=[MRR],
        items=rows,
        seed=run.seed,
        progress=lambda done, total: run.report("planning", done, total),
    )
    made.save(run.folder / PLAN, overwrite=True)
    found = made.record
    low = found.lowest[MRR]
    run.step(
        "plan",
        f"{found.recommendation}: {found.reason}; promised is a lowest point of "
        f"{low['against_today']:+.1f} [{low['ci95'][0]:+.1f}, {low['ci95'][1]:+.1f}] against today",
        f"crossfade plan {UPGRADE} {HELD} -o {PLAN} --optimize {MRR} --items {rows} "
        f"--seed {run.seed} --overwrite",
    )
    return found


def _migrate(run: _Run, upgrade: Upgrade) -> Application:
    """The plan carried out on the table, with somebody searching it from the first step on."""
    folder, table = run.folder, run.folder / TABLE
    migration = Migration(table, folder / UPGRADE)
    embedder = CallableEmbedder(embed_new, EMBEDDER)
    try:
        # The evaluation may speak against it; then the reader should see what comes of it.
        seen = migration.start(
            source="text", evaluation=folder / EVALUATION, plan=folder / PLAN, force=True
        )
        forced = any(text.startswith("forced") for text in seen.warnings)
        run.step(
            "start",
            f"journal and columns for {seen.store.rows:,} rows; new queries work from here on"
            + (f" ({seen.warnings[0]})" if forced else ""),
            f"crossfade migrate start {BEFORE} {UPGRADE} --source text --evaluation {EVALUATION} "
            f"--plan {PLAN}" + (" --force" if forced else ""),
        )
        with Application(str(table), upgrade, run.texts) as application:
            run.stage("started", 0.0, upgrade)
            lifted = migration.forward(progress=partial(run.report, "lifting"))
            run.step(
                "forward",
                f"F(old) written for {lifted.written:,} rows, nothing embedded",
                f"crossfade migrate forward {BEFORE}",
            )
            run.stage("lifted", 0.0, upgrade)
            _backfill(run, migration, embedder)
            verified = migration.verify(embed=embedder, progress=partial(run.report, "verifying"))
            passed = sum(check.passed is True for check in verified.checks)
            ran = sum(check.passed is not None for check in verified.checks)
            run.step(
                "verify",
                f"{passed} of {ran} checks passed",
                f"crossfade migrate verify {BEFORE} --embed {EMBEDDER}",
            )
            done = migration.finish(progress=partial(run.report, "finishing"))
            own = "its own space" if done.space == "new" else "the shared space"
            run.step(
                "finish",
                f"the old vectors are gone; {done.vector!r} holds the new model's, in {own}",
                f"crossfade migrate finish {BEFORE} --yes",
            )
            run.stage("finished", migration.status().share, upgrade)
    finally:
        migration.close()
    return application


def _backfill(run: _Run, migration: Migration, embedder: CallableEmbedder) -> None:
    commands, told = [], []
    for share in SHARES:
        filled = migration.backfill(
            embedder,
            plan=run.folder / PLAN,
            share=share,
            progress=partial(run.report, f"filling to {share:.0%}"),
        )
        told.append(f"{filled.filled:,}")
        commands.append(
            f"crossfade migrate backfill {BEFORE} --plan {PLAN} --embed {EMBEDDER} "
            f"--share {share:g}"
        )
        run.stage(f"{filled.share:.0%} filled", filled.share, migration.upgrade)
    run.step(
        "backfill",
        f"{', '.join(told)} rows embedded by the new model, in the plan's order",
        *commands,
    )


def _save(path: Path, **arrays: NDArray[Any]) -> None:
    with replacing(path, overwrite=True) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
