"""How soon a searcher finds a row that came after all were lifted, and what looking for it costs.

    python -m benchmarks late [--store pgvector] [--rows 1000000] [--dim 16] [--repeats 5]

A searcher is asked without pause. The application inserts a row, and the time is taken until a
search finds it. Beside it stand a plain search of the store, which is the limit, and a count of the
table, which is what a searcher would need if it went by numbers.
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
from benchmarks.stores import STORES
from crossfade import Upgrade
from crossfade.journal.columns import STATE, VECTOR
from crossfade.migration import Migration


def vectors(rows: int, dim: int, seed: int) -> np.ndarray:
    out = np.random.default_rng(seed).normal(size=(rows, dim)) + 0.5
    return out.astype(np.float32)


def measured(home: Any, folder: Path, rows: int, dim: int, repeats: int) -> dict[str, list[float]]:
    pairs = vectors(4000, dim, seed=1)
    Upgrade(solver="closed_form").fit(pairs, pairs).save(folder / "upgrade", overwrite=True)
    place = home.fresh(vectors(rows, dim, seed=2))
    migration = Migration(place, folder / "upgrade")
    migration.start(force=True)
    migration.forward()
    store, searcher = migration.store, migration.searcher()
    out: dict[str, list[float]] = {"found": [], "plain": [], "search": [], "count": []}
    late = vectors(repeats, dim, seed=3)
    searcher.search(late[0])
    for number in range(repeats):
        home.insert(place, rows + number, late[number])
        begin = time.monotonic()
        while True:
            at = time.monotonic()
            hits = searcher.search(late[number], k=3)
            out["search"].append(time.monotonic() - at)
            if hits[0].id == rows + number:
                break
        out["found"].append(time.monotonic() - begin)
        mapped = migration.upgrade.backward(late[number])
        for name, act in (
            ("plain", lambda mapped=mapped: store.search(mapped, column=VECTOR, k=3)),
            ("count", lambda: store.tally(STATE)),
        ):
            begin = time.monotonic()
            act()
            out[name].append(time.monotonic() - begin)
        migration.forward(index=False)
    migration.close()
    return out


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks late", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), action="append")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    print("| store | rows | found after s (worst) | search ms | plain search ms | count ms |")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as name:
        for kind in chosen.store or sorted(STORES):
            home = STORES[kind](Path(name))
            try:
                found = measured(home, Path(name), chosen.rows, chosen.dim, chosen.repeats)
            finally:
                home.close()
            times = {key: 1000 * statistics.median(values) for key, values in found.items()}
            print(
                f"| {kind} | {chosen.rows:,} | {times['found'] / 1000:.2f} "
                f"({max(found['found']):.2f}) | {times['search']:.1f} | {times['plain']:.1f} | "
                f"{times['count']:.0f} |",
                flush=True,
            )
