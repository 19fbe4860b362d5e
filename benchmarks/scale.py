"""Many rows: `apply` and `forward` here and by Ray, time and memory by the row, and what follows.

    python -m benchmarks scale [--rows 1000000 3000000 10000000 30000000]

A Lance table of float16 rows of 256 dimensions is made for each size, and removed after it. `apply`
maps it into another table, `forward` adds the shared column (float32) to it; each by this process
and by a Ray of this machine's processors, in a process of its own. A size that the disk has no room
for is left out, and said so. All is measured until it is on the disk: what memory holds back of a
few million rows it cannot of many. What the disk takes is told apart: before each task the table's
bytes are read and as many written, and flushed, as the task writes, with nothing done to them.

What a run of Ray costs before its first row is told apart: the same on a thousand rows. What a
fragment costs whoever commits it: a table of sixty-four small ones. From the constants, by least
squares, times for more rows and more machines:

    seconds = start + rows × per row ÷ machines + fragments × per fragment
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.machine import machine

DIM = 256
SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
FRAGMENT = 500_000
_BATCH = 50_000
_BLOCK = 8 << 20
# Bytes of a row: as it is, mapped, and lifted with its bookkeeping.
_OLD, _MAPPED, _LIFTED = 2 * DIM + 8, 2 * DIM + 8, 4 * DIM + 80
TASKS, ENGINES = ("apply", "forward"), ("local", "ray")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--task", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument("--engine", choices=ENGINES, nargs="+", default=list(ENGINES))
    parser.add_argument("--folder", type=Path, help="where there is room; /tmp by default")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        task, engine, table, upgrade = chosen.one
        print(json.dumps(one(task, engine, Path(table), Path(upgrade))))
        return
    print(machine(), "\n")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        upgrade = fitted(folder)
        fixed = constants(folder, upgrade, chosen.task, chosen.engine)
        print("| rows | task | engine | s | µs a row | rows/s | start s | peak MB |")
        print("|---" * 8 + "|", flush=True)
        found: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for rows in chosen.rows:
            measured = measure(folder, upgrade, rows, chosen.task, chosen.engine, fixed)
            for key, seconds in measured.items():
                found.setdefault(key, []).append((rows, seconds))
    formula(found, fixed)


def measure(
    folder: Path,
    upgrade: Path,
    rows: int,
    tasks: list[str],
    engines: list[str],
    fixed: dict[tuple[str, str], dict[str, float]],
) -> dict[tuple[str, str], float]:
    """Seconds of each task by each engine, without what it costs before the first row."""
    more = {"apply": _MAPPED, "forward": _LIFTED}
    out: dict[tuple[str, str], float] = {}
    room = shutil.disk_usage(folder).free
    if rows * _OLD * 1.05 > room:
        print(f"| {rows:,} | no room: {rows * _OLD / 1e9:.0f} GB of {room / 1e9:.0f} |", flush=True)
        return {}
    table = made(folder / "rows.lance", rows)
    for task in tasks:
        room = shutil.disk_usage(folder).free
        if rows * more[task] * 1.05 > room:
            needed = rows * more[task] / 1e9
            print(f"| {rows:,} | {task} | no room: {needed:.0f} GB of {room / 1e9:.0f} |")
            continue
        bare = copied(table, rows * more[task])
        print(f"| {rows:,} | {task} | nothing done | {bare:.1f} | {bare / rows * 1e6:.2f} "
              f"| {rows / bare:,.0f} | | |", flush=True)  # fmt: skip
        for engine in engines:
            told = in_process(task, engine, table, upgrade)
            before = fixed[task, engine]["before"]
            work = told["seconds"] - before
            shown = "too few rows to tell | "
            if work > 0:
                out[task, engine] = work
                shown = f"{work / rows * 1e6:.2f} | {rows / work:,.0f}"
            print(
                f"| {rows:,} | {task} | {engine} | {told['start'] + told['seconds']:.1f} | {shown} "
                f"| {told['start'] + before:.1f} | {told['peak']:,.0f} |",
                flush=True,
            )
    shutil.rmtree(table)
    return out


def copied(table: Path, size: int) -> float:
    """Seconds to read a table's files and to write `size` bytes beside it, down to the disk."""
    begin = time.perf_counter()
    target, left = table.with_name("bare"), size
    paths = sorted(table.rglob("*.lance"))
    # What is lifted is written in twice the width.
    times = -(-size // sum(path.stat().st_size for path in paths))
    with target.open("wb") as out:
        for path in paths:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    for _ in range(times):
                        out.write(block[:left])
                        left -= min(left, len(block))
        out.flush()
        os.fsync(out.fileno())
    seconds = time.perf_counter() - begin
    target.unlink()
    return seconds


def constants(
    folder: Path, upgrade: Path, tasks: list[str], engines: list[str]
) -> dict[tuple[str, str], dict[str, float]]:
    """What a run costs before its first row, and what each fragment costs whoever commits it."""
    few = made(folder / "few.lance", 1000)
    many = made(folder / "many.lance", 64_000, fragment=1000)
    out = {}
    for task in tasks:
        for engine in engines:
            told = in_process(task, engine, few, upgrade)
            before = told["seconds"]
            each = (in_process(task, engine, many, upgrade)["seconds"] - before) / 63
            out[task, engine] = {
                "start": told["start"] + before,
                "before": before,
                "fragment": max(0.0, each),
            }
    shutil.rmtree(few)
    shutil.rmtree(many)
    return out


def formula(
    found: dict[tuple[str, str], list[tuple[int, float]]],
    fixed: dict[tuple[str, str], dict[str, float]],
) -> None:
    """Per row by least squares through the sizes; then the table of what follows from it."""
    print("\n| task | engine | start s | µs a row | ms a fragment | 100 million | a billion |")
    print("|---" * 7 + "|")
    for (task, engine), points in found.items():
        rows, seconds = (np.array(column, float) for column in zip(*points, strict=True))
        # Relative errors count alike at every size.
        per_row = float((seconds / rows).mean() if len(rows) == 1 else _slope(rows, seconds))
        told = fixed[task, engine]

        def after(count: float, machines: int, per_row=per_row, told=told) -> str:
            parts = count / 1e6 * told["fragment"]
            return f"{(told['start'] + count * per_row / machines + parts) / 60:,.0f} min"

        machines = (1, 10) if engine == "ray" else (1,)
        cells = [
            ", ".join(f"{after(count, many)} on {many}" for many in machines)
            for count in (1e8, 1e9)
        ]
        print(
            f"| {task} | {engine} | {told['start']:.1f} | {per_row * 1e6:.2f} | "
            f"{told['fragment'] * 1000:.0f} | {cells[0]} | {cells[1]} |"
        )
    print("\nseconds = start + rows × per row ÷ machines + rows ÷ 1,000,000 × per fragment")


def _slope(rows: np.ndarray, seconds: np.ndarray) -> float:
    """Of a line through zero with relative errors: the mean of the ratios."""
    return float(np.sum(seconds / rows) / len(rows))


def in_process(task: str, engine: str, table: Path, upgrade: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", "scale", "--one"]
    ran = subprocess.run(
        [*command, task, engine, str(table), str(upgrade)], capture_output=True, text=True
    )
    if ran.returncode:
        raise SystemExit(ran.stderr)
    told: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return told


def one(task: str, engine: str, table: Path, upgrade: Path) -> dict[str, float]:
    """In a process of its own: seconds until its workers are there, seconds from there to done, and
    the peak of its memory with that of all processes it has started."""
    from crossfade import Upgrade
    from crossfade.cli.allocator import give_back_memory, share_heaps
    from crossfade.engines import open_engine
    from crossfade.engines.apply import apply
    from crossfade.migration import Migration

    share_heaps()
    peak = Peak()
    begin = time.perf_counter()
    workers = open_engine(engine)  # type: ignore[arg-type]
    try:
        if workers is not None:
            # A cluster, and a worker that has come up.
            list(workers.each(str, [0]))
        start = time.perf_counter() - begin
        begin = time.perf_counter()
        if task == "apply":
            target = table.with_name("mapped.lance")
            with give_back_memory():
                apply(Upgrade.load(upgrade), table, target, direction="forward", engine=workers)
            os.sync()
            seconds = time.perf_counter() - begin
            shutil.rmtree(target)
        else:
            migration = Migration(table, upgrade)
            migration.start(force=True)
            migration.forward(index=False, engine=workers)
            os.sync()
            seconds = time.perf_counter() - begin
            migration.rollback()
            migration.close()
            tidy(table)
    finally:
        if workers is not None:
            workers.close()
    return {"start": start, "seconds": seconds, "peak": peak.end()}


def tidy(table: Path) -> None:
    """Room for the next: what was lifted is in old versions still."""
    from datetime import timedelta

    import lance

    dataset = lance.dataset(str(table))
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


class Peak:
    """The most memory that this process and its children have had of their own, in MB."""

    def __init__(self) -> None:
        self._most, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> float:
        self._stop.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        # So often that a run of two seconds is looked at as closely as one of minutes.
        import psutil

        mine = psutil.Process()
        while not self._stop.wait(0.05):
            total = 0
            for process in [mine, *mine.children(recursive=True)]:
                try:
                    memory = process.memory_info()
                except psutil.Error:
                    continue
                # What several share, such as Ray's batches on their way, would count many times.
                total += memory.rss - memory.shared
            self._most = max(self._most, total / 2**20)


def fitted(folder: Path) -> Path:
    from crossfade import Upgrade

    rng = np.random.default_rng(0)
    new = rng.normal(size=(4000, DIM)).astype(np.float32) + 0.5
    old = new @ np.linalg.qr(rng.normal(size=(DIM, DIM)))[0] + 0.1 * rng.normal(size=new.shape)
    Upgrade(solver="closed_form").fit(old, new).save(folder / "upgrade")
    return folder / "upgrade"


def made(path: Path, rows: int, fragment: int = FRAGMENT) -> Path:
    """A table of float16 vectors, made as it is written."""
    import lance

    from crossfade.files.arrow import to_arrow

    rng = np.random.default_rng(1)
    block = rng.normal(size=(min(rows, _BATCH), DIM)).astype(np.float32) + 0.5
    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0].astype(np.float32)
    block = (block @ turn).astype(np.float16)
    kind = pa.list_(pa.float16(), DIM)
    schema = pa.schema({"id": pa.int64(), "vector": kind})

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, _BATCH):
            ids = np.arange(first, min(first + _BATCH, rows))
            vectors = to_arrow(np.roll(block, first // _BATCH, axis=0)[: len(ids)])
            yield pa.record_batch([pa.array(ids), vectors.cast(kind)], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(reader, str(path), max_rows_per_file=fragment)
    return path
