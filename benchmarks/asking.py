"""What it costs to ask both models: a search with both queries against one search of the store.

    python -m benchmarks asking [--store lancedb --store pgvector] [--rows 100000] [--repeats 300]
                                [--shares 0.25] [--again]

A quarter of the rows is filled, and both columns have an index. The limit is the store's own
search of the shared column; `new` is the searcher with one query, `both` with two. In turns,
medians. Every query is another, as users' are; `--again` asks all ways the same ones, whose pages
the first of them has read for the others. What the index costs: of the ten that both models would
name if every row were compared, so many are among the ten that were named.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.migrate import Paced, fitted, plan_for, turned, vectors
from benchmarks.stores import STORES
from crossfade import Upgrade
from crossfade.journal.columns import FILLED, STATE, VECTOR
from crossfade.journal.journal import need_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration import Migration
from crossfade.search import Question, Rows, Scores, joined
from crossfade.search.sampling import read_sample
from crossfade.stores.rows import matrix


def exact_tens(store: Any, upgrade: Any, old: np.ndarray, new: np.ndarray) -> list[list[Any]]:
    """What both models name by all rows, gone through one by one: as the searcher joins them."""
    journal = need_journal(store)
    column = SharedColumn.of(upgrade, journal.space, journal.lift)
    batches = list(store.stream([store.vector, VECTOR, STATE]))
    olds, shared = (np.concatenate([matrix(b[n]) for b in batches]) for n in (store.vector, VECTOR))
    ids = [key for b in batches for key in b[store.id].to_pylist()]
    filled = np.array([x == FILLED for b in batches for x in b[STATE].to_pylist()])
    sample, depth, out = read_sample(store, filled=True), 20, []
    for by_old, by_new in zip(old, new, strict=True):
        asked = column.ask(by_new)
        question = Question(by_old, asked, upgrade.query_for_old(by_new))
        sides = [np.argsort(-(olds @ by_old))[:depth], np.argsort(-(shared @ asked))[:depth]]
        some = np.unique(np.concatenate(sides))
        rows = Rows(olds[some], shared[some], ~filled[some], filled[some])
        found = Scores.of(question, rows, store.distance)
        scores = joined(question, found, sample, store.distance, journal.weights)
        out.append([ids[i] for i in some[np.argsort(-scores, kind="stable")][:10]])
    return out


def measured(
    home: Any, folder: Path, rows: int, repeats: int, share: float, again: bool
) -> tuple[dict[str, list[float]], float]:
    """Seconds of each way, and the share of the exact ten that both models' ten hold."""
    old = vectors(rows, seed=2)
    upgrade = fitted(folder, "affine")
    place = home.fresh(old)
    home.index(place)
    migration = Migration(place, upgrade)
    migration.start(force=True)
    migration.forward()
    plan = plan_for(folder, upgrade, rows, key=getattr(home, "key", int))
    migration.backfill(Paced(turned(old), None), plan=plan, share=share)
    searcher, store = migration.searcher(), migration.store
    asked_old = vectors(repeats if again else 4 * repeats, seed=5)
    asked_new = turned(asked_old)
    ways: dict[str, Any] = {
        "old": lambda i: store.search(asked_old[i], column=store.vector, k=10),
        "shared": lambda i: store.search(asked_new[i], column=VECTOR, k=10),
        "new": lambda i: searcher.search(asked_new[i]),
        "both": lambda i: searcher.search(asked_new[i], old=asked_old[i], ask="both"),
    }
    out: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(repeats):
        # Each is the first of them in its turn.
        first = turn % len(names)
        for at, name in enumerate(names[first:] + names[:first]):
            act = ways[name]
            query = turn if again else turn * len(names) + at
            begin = time.perf_counter()
            found = act(query)
            out[name].append(time.perf_counter() - begin)
            assert len(found) == 10
    judged = asked_old[:200], asked_new[:200]
    exact = exact_tens(store, Upgrade.load(upgrade), *judged)
    same = 0
    for i, ten in enumerate(exact):
        same += len({hit.id for hit in ways["both"](i)} & set(ten))
    migration.close()
    times = {name: times[len(times) // 10 :] for name, times in out.items()}
    return times, same / (10 * len(exact))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks asking", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), action="append")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25], help="that are filled")
    parser.add_argument("--again", action="store_true", help="the same query to all ways")
    parser.add_argument("--pages", metavar="SIZE", help="PostgreSQL's shared_buffers, as 1GB")
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    print(
        "| store | rows | filled | one search, old vectors ms | shared ones ms | searcher, new ms "
        "| both ms | both / mean of one | of the exact ten |"
    )
    print("|---" * 9 + "|")
    with tempfile.TemporaryDirectory() as name:
        for kind in chosen.store or ("lancedb", "pgvector"):
            home = STORES[kind](Path(name))
            if chosen.pages and kind == "pgvector":
                home.hold_pages(chosen.pages)
            try:
                for share in chosen.shares:
                    how = (chosen.rows, chosen.repeats, share, chosen.again)
                    found, same = measured(home, Path(name), *how)
                    ms = {name: 1000 * statistics.median(times) for name, times in found.items()}
                    one = (ms["old"] + ms["shared"]) / 2
                    print(
                        f"| {kind} | {chosen.rows:,} | {share:.0%} | {ms['old']:.1f} | "
                        f"{ms['shared']:.1f} | {ms['new']:.1f} | {ms['both']:.1f} | "
                        f"{ms['both'] / one:.2f} | {same:.1%} |",
                        flush=True,
                    )
            finally:
                home.close()
