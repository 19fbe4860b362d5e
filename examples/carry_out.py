"""The answer of `crossfade quickstart` confirmed: its commands run as printed, and after each of
them lookups that it has never seen are asked of the store, as it says to ask.

    python -m examples.carry_out [--store lancedb|pgvector|sqlite|faiss] -o FOLDER

The store is the table of the tour, two thousand real texts, or the same rows in another store.
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from examples.documents import (
    Kind,
    postgres_server,
    write_faiss,
    write_pgvector,
    write_sqlite,
)
from examples.upgrade_store import command

K = 10
METRIC = f"ndcg@{K}"
FOLDER, TABLE = "quickstart", "texts"
AFTER = {"start": "started", "forward": "lifted", "backfill": "filled", "finish": "finished"}


@dataclass(frozen=True, eq=False)
class Lookups:
    """Queries by both models, each wanting the row of one id."""

    old: NDArray[np.float32]
    new: NDArray[np.float32]
    wanted: list[Any]


@dataclass(frozen=True)
class Confirmed:
    """What was promised of a stage and what came, in points against today; 95 % intervals."""

    stage: str
    asked: str
    quality: float
    promised: float
    promised_ci95: tuple[float, float]
    measured: float
    measured_ci95: tuple[float, float]

    @property
    def kept(self) -> bool:
        """Whether what came lies within what was promised."""
        return self.promised_ci95[0] <= self.measured <= self.promised_ci95[1]

    def __str__(self) -> str:
        return (
            f"{self.stage:<9} asked {self.asked:<5} {self.quality:5.1f}   promised "
            f"{self.promised:+6.1f} [{self.promised_ci95[0]:+.1f}, {self.promised_ci95[1]:+.1f}]   "
            f"measured {self.measured:+6.1f} [{self.measured_ci95[0]:+.1f}, "
            f"{self.measured_ci95[1]:+.1f}]   {'within' if self.kept else 'outside'}"
        )


def carry_out(answer: dict[str, Any], place: str, lookups: Lookups) -> list[Confirmed]:
    """Run the commands of the answer, literally, and measure between them."""
    stages = {stage["name"]: stage for stage in answer["stages"]}
    today = ask(answer, place, "today", lookups)
    out = []
    for line in answer["commands"]:
        words = shlex.split(line)[1:]
        with _saying_yes():
            if code := command(*words):
                raise SystemExit(f"{line} ended with {code}")
        stage = AFTER.get(words[1])
        if stage in stages:
            out.append(_confirmed(stages[stage], today, ask(answer, place, stage, lookups)))
    return out


def ask(answer: dict[str, Any], place: str, stage: str, lookups: Lookups) -> NDArray[np.float64]:
    """What each lookup finds, in percent, asked through the store as the stage is asked."""
    from crossfade import Searcher, Upgrade, open_store

    if stage == "today":
        store = open_store(place)
        try:
            hits = [store.search(q, column=store.vector, k=K) for q in lookups.old]
        finally:
            store.close()
    else:
        searcher = Searcher(place, Upgrade.load(answer["files"]["upgrade"]))
        way = next(one["asked"] for one in answer["stages"] if one["name"] == stage)
        sides = {"new": lookups.new} if way == "new" else {"new": lookups.new, "old": lookups.old}
        try:
            hits = searcher.search_many(k=K, **sides)
        finally:
            searcher.store.close()
    places = [
        next((rank for rank, hit in enumerate(found, 1) if hit.id == wanted), 0)
        for found, wanted in zip(hits, lookups.wanted, strict=True)
    ]
    return np.array([100 / np.log2(1 + rank) if rank else 0.0 for rank in places])


def _confirmed(
    stage: dict[str, Any], today: NDArray[np.float64], found: NDArray[np.float64]
) -> Confirmed:
    from crossfade.compatibility.bootstrap import interval, resampled_means

    gain, level = found - today, stage["levels"][METRIC]
    return Confirmed(
        stage=stage["name"],
        asked=stage["asked"],
        quality=float(found.mean()),
        promised=level["against_today"],
        promised_ci95=tuple(level["ci95"]),
        measured=float(gain.mean()),
        measured_ci95=interval(resampled_means(gain[:, None], 2000, 0)[:, 0]),
    )


@contextmanager
def _saying_yes() -> Iterator[None]:
    """`finish` asks before it drops the old vectors."""
    before, sys.stdin = sys.stdin, io.StringIO("y\n")
    try:
        yield
    finally:
        sys.stdin = before


@contextmanager
def _store(kind: Kind) -> Iterator[tuple[str, ...]]:
    """What is typed behind `crossfade quickstart`: nothing on the tour."""
    from crossfade.demo.models import embed_old
    from crossfade.demo.texts import load_texts
    from crossfade.demo.tour import TOUR

    if kind == "lancedb":
        yield ()
        return
    texts = load_texts()
    columns = {"title": texts.titles, "text": texts.texts}
    sizes = [word for name, n in TOUR.sizes.items() for word in (f"--{name}", str(n))]
    models = ("--embed", TOUR.embed, "--embed-old", TOUR.embed_old)
    rest = (*models, "--source", "text", "--title", TOUR.title, *sizes)
    if kind in ("sqlite", "faiss"):
        write = write_sqlite if kind == "sqlite" else write_faiss
        yield (write(Path(), TABLE, texts.ids, columns, embed_old(texts.texts)), *rest)
        return
    with postgres_server(Path("server").resolve()) as url:
        write_pgvector(url, TABLE, texts.ids, columns, embed_old(texts.texts))
        yield (f"{url}#{TABLE}", *rest)


def _unseen(answer: dict[str, Any]) -> Lookups:
    """Titles of all rows but those that the answer was found with."""
    from crossfade.demo.models import embed_new, embed_old
    from crossfade.demo.texts import load_texts

    texts = load_texts()
    with np.load(answer["files"]["pairs.npz"]) as arrays:
        seen = set(arrays["held_ids"][arrays["lookup_items"]].tolist())
    rows = [row for row, one in enumerate(texts.ids) if one not in seen]
    titles = [texts.titles[row] for row in rows]
    return Lookups(embed_old(titles), embed_new(titles), [texts.ids[row] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=get_args(Kind), default="lancedb")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    with chdir(asked.output), _store(asked.store) as words:
        begin = time.perf_counter()
        if code := command("quickstart", *words, "-o", FOLDER):
            raise SystemExit(f"quickstart ended with {code}")
        print(f"\nthe answer took {time.perf_counter() - begin:.0f} s")
        answer = json.loads(Path(FOLDER, "answer.json").read_text())
        place = words[0] if words else answer["store"]
        lookups = _unseen(answer)
        found = carry_out(answer, place, lookups)
        took = time.perf_counter() - begin
        print(
            f"\n{METRIC} of {len(lookups.wanted):,} lookups that the answer has not seen, points "
            "against today"
        )
        print("\n".join(map(str, found)))
        print(f"all of it took {took:.0f} s")


if __name__ == "__main__":
    main()
