"""A live store moved from one text model to another, with searches running throughout.

    python -m examples.upgrade_store [--store KIND] [--documents N] -o FOLDER

Every step is the command a user types, run by this process; the application that searches is
another one, or a thread of this one where the store is open in one process at a time. Writes
report.json, searches.jsonl and timeline.png beside the store, and prints what was measured at each
stage. The backfill calls the new model for every row it fills; the only new vectors made beforehand
are those of the pairs, of the held-out documents and of the queries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from crossfade.demo.models import NEW_MODEL, OLD_MODEL
from examples.application import Application, Queries, Running, read_log, running
from examples.documents import IN_PROCESS, Kind, parts_of, store_of, write_vectors
from examples.quality import LOOKUP_DEPTH, Quality, Rows, measure
from examples.texts import Corpus, read_corpus
from examples.timeline import Stage, draw, served, tell

EMBEDDER = "crossfade.demo.models:embed_new"
# What most users of text have: no labels. The closed form is what such a fit begins with.
FIT = ("--solver", "closed_form", "--no-labels")
# Where to look, beside the pairs' own share and the plan's; the store is filled to the end.
SHARES = {0.6, 0.8, 1.0}
QUERIES = (Path("related.npz"), Path("lookups.npz"))
MRR = f"mrr@{LOOKUP_DEPTH}"
MEASURING = "quality is measured"


def command(*arguments: str) -> int:
    """What `crossfade WORDS` does, in this process, so that the model is loaded once."""
    from crossfade.cli import main

    print(f"\n$ crossfade {shlex.join(arguments)}", flush=True)
    before, sys.argv = sys.argv, ["crossfade", *arguments]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
        sys.stdout.flush()
    return 0


def done(*arguments: str) -> None:
    """A command that must succeed."""
    if code := command(*arguments):
        raise SystemExit(f"crossfade {arguments[0]} ended with {code}")


class Upgrading:
    """One run: the store, the application beside it, and what is measured on the way."""

    def __init__(self, address: str, application: Running, seconds: float) -> None:
        from crossfade import Upgrade
        from crossfade.stores import open_store

        self.address, self.running, self.seconds = address, application, seconds
        self.related, self.lookups = (Queries.load(path) for path in QUERIES)
        # What is measured is of this stage, not of what it was a second ago.
        self.ours = Application(open_store(address), Upgrade.load("upgrade"), refresh=0.0)
        self.stages: list[Stage] = []
        self.qualities: list[Quality] = []
        self.without_old: dict[str, dict[str, float]] = {}
        labels: dict[str, str] = {}
        for batch in self.ours.store.stream(["label"]):
            labels |= zip(batch["id"].to_pylist(), batch["label"].to_pylist(), strict=True)
        self.rows = Rows(labels, size=len(Queries.load(Path("held.npz"))))

    def still(self, name: str, model: Any, predicted: dict[str, float], new: int = 0) -> None:
        """Let the application search undisturbed for a while, then ask for the quality."""
        self.running.now(name, model)
        time.sleep(self.seconds)
        self.running.now(MEASURING, model)
        quality = measure(
            lambda queries, i, k: self.ours.search(queries, i, model, k),
            self.related,
            self.lookups,
            self.rows,
        )
        self.qualities.append(quality)
        above = quality.above(self.qualities[0])
        self.stages.append(Stage(name, new, quality.means, above, quality.sampled, predicted))

    def alone(self, name: str) -> None:
        """What new queries alone would have had at this stage."""
        found = measure(
            lambda queries, i, k: self.ours.search(queries, i, "new", k),
            self.related,
            self.lookups,
            self.rows,
        )
        self.without_old[name] = found.means

    def during(self, name: str, model: Any, *arguments: str) -> None:
        """A command that must succeed, with the searches meanwhile under its name."""
        self.running.now(name, model)
        done(*arguments)


def prepare(fit: Sequence[str]) -> None:
    """Fit on the pairs; evaluate and plan on held-out documents and their summaries."""
    named = ("--old-model", OLD_MODEL, "--new-model", NEW_MODEL)
    done("fit", "pairs.npz", "-o", "upgrade", "--drop-bad-rows", "--overwrite", *fit, *named)
    held = ("upgrade", "held.npz")
    measured = ("--metric", "cmc@1", "--metric", "mAP", "--no-definition")
    command("evaluate", *held, *measured, "--require", "none", "--json", "related.json")
    asked = ("--queries", "held-summaries.npz", "--qrels", "held-qrels.npy", "--no-labels")
    measured = ("--metric", MRR, "--no-definition")
    command("evaluate", *held, *asked, *measured, "--json", "lookups.json")
    judged = ("--queries", "held-summaries.npz", "--qrels", "held-qrels.npy")
    done("plan", *held, *judged, "--optimize", MRR, "-o", "plan", "--overwrite")


def expected(case: str) -> dict[str, float]:
    """What the two evaluations say of a case."""
    related, lookups = (
        json.loads(Path(f"{name}.json").read_text())["cases"][case]
        for name in ("related", "lookups")
    )
    return {"cmc@1": related["cmc@1"], "mAP": related["mAP"], "MRR": lookups[MRR]}


def migrate(run: Upgrading) -> None:
    """From the first old query to the last new one."""
    from crossfade import Migration, Plan

    plan = Plan.load("plan")

    def planned(share: float) -> dict[str, float]:
        return {"MRR": plan.quality_at(share, MRR)}

    address = run.address
    run.still("before", "old", expected("old/old"))
    arguments = ("migrate", "start", address, "upgrade", "--source", "text")
    arguments += ("--evaluation", "lookups.json", "--plan", "plan")
    run.running.now("start", "old")
    if command(*arguments):
        # Small samples may say no: what that means is told, and the example goes on.
        done(*arguments, "--force")
    run.still("started", "both", expected("both/old"))
    run.alone("started")
    run.during("forward", "both", "migrate", "forward", address)
    run.still("lifted", "both", expected("both/old"))
    run.alone("lifted")
    fill = ("migrate", "backfill", address, "--plan", "plan", "--embed", EMBEDDER)
    fill += ("--known", "pairs.npz:new")
    pairs = len(Queries.load(Path("pairs.npz"))) / len(run.rows.labels)
    # Rounded up, so that the last pair is among them.
    shares = {math.ceil(1e6 * pairs) / 1e6, plan.record.stop}
    for share in sorted(share for share in shares | SHARES if share >= pairs):
        run.during(f"backfill to {share:.0%}", "both", *fill, "--share", f"{share:g}")
        migration = Migration(address)
        found = migration.status()
        migration.close()
        run.still(f"{found.share:.0%} new", "both", planned(found.share), found.filled)
        run.alone(f"{found.share:.0%} new")
    done("migrate", "status", address)
    checked = ("--queries", "related.npz", "--labels", "label", "--embed", EMBEDDER)
    run.during("verify", "both", "migrate", "verify", address, *checked)
    run.during("finish", "both", "migrate", "finish", address, "--yes")
    run.still("finished", "new", expected("new/new"), found.filled)
    run.ours.store.close()


def upgrade_store(
    kind: Kind, corpus: Corpus, folder: Path, seconds: float, fit: Sequence[str] = FIT
) -> Path:
    """The whole of it; gives the report."""
    folder.mkdir(parents=True, exist_ok=True)
    if within := kind in IN_PROCESS:
        corpus = corpus.with_uuids()
    with chdir(folder):
        print(f"{len(corpus):,} docstrings, embedding those that must be", flush=True)
        parts = parts_of(corpus)
        write_vectors(corpus, parts, Path())
        prepare(fit)
        log = Path("searches.jsonl")
        with (
            store_of(kind, corpus, parts.stored, Path()) as address,
            running(address, Path("upgrade"), QUERIES, log, within=within) as application,
        ):
            run = Upgrading(address, application, seconds)
            migrate(run)
        searches = read_log(log)
        report = {
            "store": kind,
            "rows": len(run.rows.labels),
            "queries": {"related": len(run.related), "lookups": len(run.lookups)},
            "stages": [asdict(stage) for stage in run.stages],
            "new_alone": run.without_old,
            "served": [asdict(one) for one in served(searches)],
        }
        Path("report.json").write_text(json.dumps(report, indent=1) + "\n")
        print("\n" + tell(run.stages, searches))
        print("\nnew queries alone, at the same stages\n")
        for name, means in run.without_old.items():
            print(f"{name:<12}" + "".join(f"{m:>8} {v:5.1f}" for m, v in means.items()))
        draw(run.stages, searches, Path("timeline.png"))
        print(f"\nwritten: report.json, searches.jsonl and timeline.png in {folder.name}")
    return folder / "report.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=get_args(Kind), default="lancedb")
    parser.add_argument("--documents", type=int, help="so many; by default all of them")
    parser.add_argument("--seconds", type=float, default=8.0, help="undisturbed at each stage")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    # Tables as wide in a file as on a screen.
    os.environ.setdefault("COLUMNS", "110")
    corpus = read_corpus(limit=asked.documents)
    upgrade_store(asked.store, corpus, asked.output.resolve(), asked.seconds)


if __name__ == "__main__":
    main()
