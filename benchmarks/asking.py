"""What it costs to ask both models: a search with both queries against one search of the store.

    python -m benchmarks asking [--store lancedb --store pgvector] [--rows 100000] [--repeats 300]

A quarter of the rows is filled, and both columns have an index. The limit is the store's own search
of the shared column; `new` is the searcher with one query, `both` with two. In turns, medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.migrate import Paced, fitted, plan_for, turned, vectors
from benchmarks.stores import STORES
from crossfade.journal.columns import VECTOR
from crossfade.migration import Migration


def measured(home: Any, folder: Path, rows: int, repeats: int) -> dict[str, list[float]]:
    old = vectors(rows, seed=2)
    upgrade = fitted(folder, "affine")
    place = home.fresh(old)
    home.index(place)
    migration = Migration(place, upgrade)
    migration.start(force=True)
    migration.forward()
    plan = plan_for(folder, upgrade, rows, key=getattr(home, "key", int))
    migration.backfill(Paced(turned(old), None), plan=plan, share=0.25)
    searcher, store = migration.searcher(), migration.store
    asked_old = vectors(200, seed=5)
    asked_new = turned(asked_old)
    ways: dict[str, Any] = {
        "store": lambda i: store.search(asked_new[i], column=VECTOR, k=10),
        "new": lambda i: searcher.search(asked_new[i]),
        "both": lambda i: searcher.search(asked_new[i], old=asked_old[i], ask="both"),
    }
    out: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(repeats):
        # Whoever comes first finds pages that the others have at hand: each does, in its turn.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            act = ways[name]
            begin = time.perf_counter()
            found = act(turn % len(asked_old))
            out[name].append(time.perf_counter() - begin)
            assert len(found) == 10
    migration.close()
    return {name: times[len(times) // 10 :] for name, times in out.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks asking", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), action="append")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=300)
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    print("| store | rows | one search ms | searcher, new ms | both ms | both / one |")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as name:
        for kind in chosen.store or ("lancedb", "pgvector"):
            home = STORES[kind](Path(name))
            try:
                found = measured(home, Path(name), chosen.rows, chosen.repeats)
            finally:
                home.close()
            one, new, both = (1000 * statistics.median(found[n]) for n in ("store", "new", "both"))
            print(
                f"| {kind} | {chosen.rows:,} | {one:.1f} | {new:.1f} | {both:.1f} | "
                f"{both / one:.2f} |",
                flush=True,
            )
