"""A migration against the store's own bulk speed, and what it costs the searches beside it.

    python -m benchmarks migrate [--store chroma] [--rows 200000] [--searched 20000]

`forward` reads every old vector, lifts it, and writes the shared vector with its bookkeeping. The
limit it is held against reads the same column and writes it back as another, with the store's own
library and nothing in between: scan and `merge_insert` for Lance; for pgvector, COPY out, COPY into
a staging table, one INSERT … SELECT; for Milvus and Chroma, query and
insert into another collection. Both write to fresh stores, in turn, in the batches that suit each.
A second limit writes with each vector as many values as a migration keeps of a row.

`backfill` fills every row of a lifted store with vectors that are there already, in the order of a
plan, and is held against the same: it too reads every row before it writes it, to see whether it
has changed. The index is not part of it, where the store has one that is not always there.

Searches are counted in a process of their own, before and during a backfill in another one, which
gives way as the command does: once with new vectors that come at a pace (as from a model or an
endpoint), once as fast as they can be written.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import machine
from benchmarks.stores import DIM, STORES
from crossfade import Held, Pairs, Upgrade, plan
from crossfade.cli.migrate.priority import SHARE, give_way
from crossfade.journal import open_migrating
from crossfade.migration import Migration
from crossfade.search import Searcher

PARTS = ("forward", "backfill", "search")


def vectors(rows: int, seed: int, dim: int = DIM) -> np.ndarray:
    """Around a mean and in clusters, as embeddings are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(200, dim)) + 1.5
    out = centres[rng.integers(200, size=rows)] + 0.7 * rng.normal(size=(rows, dim))
    return (out / np.linalg.norm(out, axis=1, keepdims=True)).astype(np.float32)


def turned(old: np.ndarray) -> np.ndarray:
    """The new model: another orientation of the same space."""
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(old.shape[1], old.shape[1])))[0]
    new = old @ turn + 0.02 * rng.normal(size=old.shape)
    return np.asarray(new, np.float32)


def fitted(folder: Path, forward_map: str, dim: int = DIM) -> Path:
    old = vectors(4000, seed=1, dim=dim)
    labels = np.arange(4000) % 50
    settings: dict[str, Any] = {"solver": "closed_form"}
    if forward_map == "mlp":
        settings = {"epochs": 1, "forward_map": "mlp"}
    path = folder / f"upgrade-{forward_map}"
    Upgrade(**settings).fit(old, turned(old), labels).save(path, overwrite=True)
    return path


def forward(home: Any, folder: Path, rows: int, repeats: int, kind: str) -> None:
    old = vectors(rows, seed=2)
    for name in ("affine", "mlp"):
        upgrade = fitted(folder, name)
        times = []
        for _ in range(repeats):
            place = home.fresh(old)
            migration = Migration(place, upgrade)
            migration.start(force=True)
            ours = migration.forward(index=False).seconds
            migration.rollback()
            migration.close()
            times.append((ours, *bare(home, old)))
        print(f"| {kind} | F {name} | {rows:,} | {held_against(rows, times)} |", flush=True)


def filling(home: Any, folder: Path, rows: int, repeats: int, kind: str) -> None:
    old = vectors(rows, seed=2)
    upgrade = fitted(folder, "affine")
    plan, new = plan_for(folder, upgrade, rows, key=getattr(home, "key", int)), turned(old)
    times = []
    for _ in range(repeats):
        migration = Migration(home.fresh(old), upgrade)
        migration.start(force=True)
        migration.forward(index=False)
        filled = migration.backfill(Paced(new, None), plan=plan, share=1.0)
        assert filled.written == rows
        migration.rollback()
        migration.close()
        times.append((filled.seconds, *bare(home, old)))
    print(f"| {kind} | {rows:,} | {held_against(rows, times)} |", flush=True)


def bare(home: Any, old: np.ndarray) -> tuple[float, float]:
    """Seconds of the bare way: of the vectors alone, and with as many values as are kept."""
    alone = home.bare(home.fresh(old))
    return alone, home.bare(home.fresh(old), values=True)


def held_against(rows: int, times: list[tuple[float, float, float]]) -> str:
    """Medians of ours and of both bare ways, rows a second, and the ratios."""
    ours, alone, valued = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = [statistics.median(turn[0] / turn[at] for turn in times) for at in (1, 2)]
    return (
        f"{ours:.1f} | {alone:.1f} | {valued:.1f} | {rows / ours:,.0f} | "
        f"{ratios[0]:.2f} | {ratios[1]:.2f}"
    )


class Paced:
    """An embedder that answers so many items a second, as a model elsewhere does."""

    needs_source, name = False, "a model at a pace"

    def __init__(self, new: np.ndarray, per_second: float | None) -> None:
        self.new, self.per_second = new, per_second

    def embed(self, ids: Any, sources: Any) -> np.ndarray:
        if self.per_second is not None:
            time.sleep(len(ids) / self.per_second)
        return self.new[np.asarray(ids, np.int64)]


def searching(place: str, upgrade: str, queries: np.ndarray, stop: Any, counted: Any) -> None:
    """Search without pause; when each search began and how long it took go into `counted`."""
    store = open_migrating(place)
    searcher = Searcher(store, Upgrade.load(upgrade))
    times = []
    while not stop.is_set():
        query = queries[len(times) % len(queries)]
        begin = time.monotonic()
        found = searcher.search(query, k=10)
        times.append((begin, time.monotonic() - begin))
        assert len(found) == 10
    store.close()
    counted.put(times)


def backfilling(place: str, upgrade: str, plan: str, new: str, pace: float | None, seconds: float,
                done: Any) -> None:  # fmt: skip
    """A backfill as its command does it, in a process that gives way; when, and how many rows."""
    give_way(full_speed=False)
    migration = Migration(place, upgrade)
    begin = time.monotonic()
    filled = migration.backfill(
        Paced(np.load(new), pace),
        plan=Path(plan),
        share=1.0,
        processors=SHARE,
        stop=lambda: time.monotonic() - begin > seconds,
    )
    migration.close()
    done.put((begin, begin + filled.seconds, filled.written))


@contextlib.contextmanager
def searched(place: str, upgrade: Path, queries: np.ndarray, into: list[Any]) -> Iterator[None]:
    """A process that searches for as long as this lasts."""
    context = multiprocessing.get_context("spawn")
    stop, counted = context.Event(), context.Queue()
    process = context.Process(
        target=searching, args=(place, str(upgrade), queries, stop, counted), daemon=True
    )
    process.start()
    time.sleep(4.0)  # Until its imports are over.
    try:
        yield
    finally:
        stop.set()
        into += counted.get()
        process.join()


def plan_for(folder: Path, upgrade: Path, rows: int, dim: int = DIM, key: Any = int) -> Path:
    """A plan to fill everything, in the order of the ids."""
    import pyarrow.parquet as pq

    rows_held = vectors(1000, seed=9, dim=dim)
    held = Held.of(Pairs.from_arrays(rows_held, turned(rows_held), np.arange(1000) % 50))
    made = plan(Upgrade.load(upgrade), held, orders=["random"], blends=[1.0])
    made.save(folder / "plan", overwrite=True)
    pq.write_table(
        pa.table({"id": [key(i) for i in range(rows)]}), folder / "plan" / "order.parquet"
    )
    return folder / "plan"


def beside(home: Any, folder: Path, rows: int, seconds: float, repeats: int, kind: str) -> None:
    old = vectors(rows, seed=2)
    upgrade = fitted(folder, "affine")
    key = getattr(home, "key", int)
    plan, queries = plan_for(folder, upgrade, rows, key=key), turned(vectors(200, seed=5))
    np.save(folder / "new.npy", turned(old))
    for name, pace in (("200 items/s", 200.0), ("1,000 items/s", 1000.0), ("flat out", None)):
        turns = []
        for _ in range(repeats):
            place = home.fresh(old)
            migration = Migration(place, upgrade)
            migration.start(force=True)
            migration.forward()
            migration.close()
            words = (str(upgrade), str(plan), str(folder / "new.npy"), pace, seconds)
            turns.append(turn(place, upgrade, queries, words, seconds))
        written, *found = (statistics.median(column) for column in zip(*turns, strict=True))
        lost = [1 - during / alone for _, alone, during, *_ in turns]
        print(
            f"| {kind} | {name} | {written:,.0f} | {found[0]:,.0f} | {found[1]:,.0f} | "
            f"{statistics.median(lost):.0%} ({min(lost):.0%} to {max(lost):.0%}) | "
            f"{found[2]:.1f} / {found[3]:.1f} | {found[4]:.1f} / {found[5]:.1f} |",
            flush=True,
        )


def turn(place: str, upgrade: Path, queries: np.ndarray, words: Any, seconds: float) -> list[float]:
    """Rows written a second; searches a second alone and during; p50 and p95 of both in ms."""
    context = multiprocessing.get_context("spawn")
    ended = context.Queue()
    process = context.Process(target=backfilling, args=(place, *words, ended))
    both: list[tuple[float, float]] = []
    with searched(place, upgrade, queries, both):
        first = time.monotonic()
        time.sleep(seconds)
        last = time.monotonic()
        process.start()
        begin, end, written = ended.get()
        process.join()
    alone = [took for at, took in both if first <= at < last]
    during = [took for at, took in both if begin <= at < end]
    rates = [1 / float(np.mean(times)) for times in (alone, during)]
    spread = [float(np.quantile(times, q)) * 1000 for times in (alone, during) for q in (0.5, 0.95)]
    return [written / max(end - begin, 1e-9), *rates, *spread]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks migrate", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), action="append")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--searched", type=int, default=20_000, help="rows of the searched store")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append")
    chosen = parser.parse_args(arguments)
    parts = chosen.only or PARTS
    print(machine(), "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        homes = {s: STORES[s](folder) for s in chosen.store or sorted(STORES)}
        try:
            if "forward" in parts:
                print(
                    "| store | map | rows | forward s | bare s | with values s | rows/s "
                    "| ratio | with values |\n" + "|---" * 9 + "|"
                )
                for kind, home in homes.items():
                    forward(home, folder, chosen.rows, chosen.repeats, kind)
            if "backfill" in parts:
                print(
                    "\n| store | rows | backfill s | bare s | with values s | rows/s | ratio "
                    "| with values |\n" + "|---" * 8 + "|"
                )
                for kind, home in homes.items():
                    filling(home, folder, chosen.rows, chosen.repeats, kind)
            if "search" in parts:
                print(
                    "\n| store | new vectors come | rows/s written | searches/s alone | during "
                    "| lost | p50 / p95 ms alone | during |\n" + "|---" * 8 + "|"
                )
                for kind, home in homes.items():
                    if getattr(home, "alone", False):
                        continue
                    beside(home, folder, chosen.searched, chosen.seconds, chosen.repeats, kind)
        finally:
            for home in homes.values():
                home.close()
