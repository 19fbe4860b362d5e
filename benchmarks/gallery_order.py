"""What two shortcuts of ordering a gallery are worth, each against the plain way in one run.

Rows from the most urgent on: numbers that hold urgency and row are sorted, against rows sorted by
their urgency. Halves widened to single precision: by shifting bits, against numpy.

python -m benchmarks.gallery_order [--rows 5000000] [--on-disk 1000000 10000000 100000000]

With --on-disk: what sorting so many rows on the disk takes of memory, each in a process of its own;
of the resident set what no file stands behind, for the rest goes when others want it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.external import spread
from crossfade.backfill.ids import Ids
from crossfade.backfill.rows import widened


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The fastest of a few runs, after one that nobody counts."""
    work()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def plainly(urgency: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows sorted by falling urgency, then by their number."""
    return np.lexsort((np.arange(len(urgency)), -urgency))


def anonymous() -> float:
    """Memory of this process that no file stands behind, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line) / 1024


def on_disk(rows: int) -> None:
    """Print the seconds of a sort on the disk, and the most memory it had beyond the beginning."""
    most, over, before = 0.0, threading.Event(), anonymous()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, anonymous() - before)

    watching = threading.Thread(target=watch)
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        urgency = spread(folder, rows, np.float64)
        for first in range(0, rows, 1 << 20):
            urgency[first : first + (1 << 20)] = rng.normal(size=min(1 << 20, rows - first))
        watching.start()
        begin = time.perf_counter()
        order = Ids(None, rows).most_urgent_first(urgency, folder)
        taken = time.perf_counter() - begin
        over.set()
        watching.join()
        if (np.diff(urgency[order[: 1 << 20]]) > 0).any():
            raise SystemExit("they are in no order")
    print(f"| {rows:,} | {taken:.1f} | {1e9 * taken / rows:.0f} | {most:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--on-disk", type=int, nargs="*", default=[])
    args = parser.parse_args()
    rows = args.rows
    if args.on_disk:
        print("| rows | seconds | ns / row | MB of memory, at most |")
        print("|---|---|---|---|", flush=True)
        spawning = multiprocessing.get_context("spawn")
        for size in args.on_disk:
            process = spawning.Process(target=on_disk, args=(size,))
            process.start()
            process.join()
        return
    rng = np.random.default_rng(0)
    urgency = rng.normal(size=rows)
    ids = Ids(None, rows)
    if not np.array_equal(ids.most_urgent_first(urgency), plainly(urgency)):
        raise SystemExit("the two ways differ")
    ours = seconds(lambda: ids.most_urgent_first(urgency))
    plain = seconds(lambda: plainly(urgency))
    print(
        f"most urgent first, {rows:,} rows: {ours:.2f} s, plainly {plain:.2f} s, "
        f"{plain / ours:.1f} times"
    )
    halves = rng.normal(size=(max(1, rows // 100), 384)).astype(np.float16)
    ours = seconds(lambda: widened(halves))
    plain = seconds(lambda: halves.astype(np.float32))
    print(
        f"halves widened, {len(halves):,} × 384: {1000 * ours:.0f} ms, numpy "
        f"{1000 * plain:.0f} ms, {plain / ours:.1f} times"
    )


if __name__ == "__main__":
    main()
