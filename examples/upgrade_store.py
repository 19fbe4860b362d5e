"""A live store moved from one text model to another, with searches running throughout.

    python -m examples.upgrade_store [--store lancedb|pgvector] [--documents N] -o FOLDER

Every step is the command a user types, run by this process; the application that searches is
another one. Writes report.json, searches.jsonl and timeline.png beside the store, and prints what
was measured at each stage. The backfill calls the new model for every row it fills; the only new
vectors made beforehand are those of the pairs, of the held-out documents and of the queries.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

from examples.application import Application, Queries, Running, read_log, running
from examples.documents import Kind, store_of, write_vectors
from examples.models import NEW_MODEL, OLD_MODEL
from examples.quality import Quality, measure
from examples.texts import read_corpus
from examples.timeline import Stage, draw, tell

EMBEDDER = "examples.models:embed_new"
# Chosen on the held documents, before the application's queries were looked at: docs/example.md.
FIT = ("--backward", "near-orthogonal")
SHARES = (0.6, 0.8)
MEASURING = "quality is measured"


def command(*words: str) -> int:
    """What `crossfade WORDS` does, in this process, so that the model is loaded once."""
    from crossfade.cli import main

    print(f"\n$ crossfade {shlex.join(words)}", flush=True)
    before, sys.argv = sys.argv, ["crossfade", *words]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
        sys.stdout.flush()
    return 0


def done(*words: str) -> None:
    """A command that must succeed."""
    if code := command(*words):
        raise SystemExit(f"crossfade {words[0]} ended with {code}")


class Upgrading:
    """One run: the store, the application beside it, and what is measured on the way."""

    def __init__(self, place: str, application: Running, seconds: float) -> None:
        from crossfade import Upgrade
        from crossfade.stores import open_store

        self.place, self.running, self.seconds = place, application, seconds
        queries = Queries.load(Path("queries.npz"))
        self.ours = Application(open_store(place), Upgrade.load("upgrade"), queries)
        self.stages: list[Stage] = []
        self.qualities: list[Quality] = []
        self.labels: Counter[str] = Counter()
        for rows in self.ours.store.stream(["label"]):
            self.labels.update(rows["label"].to_pylist())

    def still(self, name: str, model: Any, predicted: dict[str, float], new: int = 0) -> None:
        """Let the application search undisturbed for a while, then ask for the quality."""
        self.running.now(name, model)
        time.sleep(self.seconds)
        self.running.now(MEASURING, model)
        quality = measure(
            lambda i, k: self.ours.search(i, model, k), self.ours.queries, self.labels
        )
        self.qualities.append(quality)
        above = quality.above(self.qualities[0])
        self.stages.append(Stage(name, new, quality.means, above, predicted))

    def during(self, name: str, model: Any, *words: str) -> int:
        """A command, with the searches meanwhile under its name."""
        self.running.now(name, model)
        return command(*words)


def prepare() -> None:
    """Fit on the pairs; evaluate and plan on held-out documents and their summaries."""
    named = ("--old-model", OLD_MODEL, "--new-model", NEW_MODEL)
    done("fit", "pairs.npz", "-o", "upgrade", "--drop-bad-rows", "--overwrite", *FIT, *named)
    held = ("upgrade", "held.npz", "--queries", "held-queries.npz", "--no-definition")
    command("evaluate", *held, "--json", "by-label.json")
    judged = ("--no-labels", "--qrels", "held-qrels.npy", "--metric", "mrr@1000")
    command("evaluate", *held, *judged, "--json", "by-document.json")
    done("plan", *held[:-1], "-o", "plan", "--overwrite")


def expected(case: str) -> dict[str, float]:
    """What the two evaluations say of a case."""
    by_label = json.loads(Path("by-label.json").read_text())["cases"][case]
    by_document = json.loads(Path("by-document.json").read_text())["cases"][case]
    return {
        "cmc@1": by_label["cmc@1"],
        "mAP": by_label["mAP"],
        "MRR": by_document["mrr@1000"],
    }


def migrate(run: Upgrading) -> None:
    """From the first old query to the last new one."""
    from crossfade.migration import Migration
    from crossfade.migration.quality import predicted

    def planned(share: float) -> dict[str, float]:
        return predicted(Path("plan"), share).now

    place = run.place
    run.still("before", "old", expected("old/old"))
    words = ("migrate", "start", place, "upgrade", "--source", "text")
    words += ("--evaluation", "by-label.json", "--plan", "plan")
    if run.during("start", "old", *words):
        done(*words, "--force")
    run.still("started", "new", expected("B(new)/old"))
    run.during("forward", "new", "migrate", "forward", place, "--batch", "500")
    run.still("lifted", "new", expected("B(new)/F(old)"))
    fill = ("migrate", "backfill", place, "--plan", "plan", "--embed", EMBEDDER)
    fill += ("--known", "pairs.npz:new")
    rows = sum(run.labels.values())
    with_pairs = len(Queries.load(Path("pairs.npz"))) / rows
    plan = json.loads(Path("plan/plan.json").read_text())
    shares = [s for s in (with_pairs, *SHARES) if with_pairs <= s < plan["stop"]]
    for share in [*shares, max(plan["stop"], with_pairs)]:
        name = f"backfill to {share:.0%}"
        run.during(name, "new", *fill, "--share", f"{share:.6f}")
        migration = Migration(place)
        found = migration.status()
        migration.close()
        run.still(f"{found.share:.0%} new", "new", planned(found.share), found.new)
    run.during("verify", "new", "migrate", "status", place)
    checked = ("--queries", "queries.npz", "--labels", "label", "--embed", EMBEDDER)
    if command("migrate", "verify", place, *checked):
        raise SystemExit("the store is not as it should be: not finished")
    run.during("finish", "new", "migrate", "finish", place, "--yes")
    run.still("finished", "new", planned(found.share), found.new)
    run.ours.store.close()


def upgrade_store(kind: Kind, documents: int | None, folder: Path, seconds: float) -> Path:
    """The whole of it; gives the report."""
    folder.mkdir(parents=True, exist_ok=True)
    with chdir(folder):
        corpus = read_corpus(limit=documents)
        print(f"{len(corpus):,} docstrings, embedding those that must be", flush=True)
        write_vectors(corpus, Path())
        prepare()
        log = Path("searches.jsonl")
        with (
            store_of(kind, corpus, Path()) as place,
            running(place, Path("upgrade"), Path("queries.npz"), log) as application,
        ):
            run = Upgrading(place, application, seconds)
            migrate(run)
        report = {
            "store": kind,
            "rows": sum(run.labels.values()),
            "queries": len(run.ours.queries),
            "stages": [vars(stage) for stage in run.stages],
        }
        searches = read_log(log)
        Path("report.json").write_text(json.dumps(report | {"searches": len(searches)}, indent=1))
        print("\n" + tell(run.stages, searches))
        draw(run.stages, searches, Path("timeline.png"))
        print(f"\nwritten: {folder / 'report.json'} and {folder / 'timeline.png'}")
    return folder / "report.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=("lancedb", "pgvector"), default="lancedb")
    parser.add_argument("--documents", type=int, help="so many; by default all of them")
    parser.add_argument("--seconds", type=float, default=8.0, help="undisturbed at each stage")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    # Tables as wide in a file as on a screen.
    os.environ.setdefault("COLUMNS", "110")
    upgrade_store(asked.store, asked.documents, asked.output.resolve(), asked.seconds)


if __name__ == "__main__":
    main()
