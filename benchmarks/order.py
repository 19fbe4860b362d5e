"""Ordering a gallery against reading it: seconds as a ratio to bare reads of the same file.

    python -m benchmarks order [--rows 10000000] [--repeats 3] [--folder FOLDER]

The gallery is float16 in 256 dimensions, old vectors and the same lifted by F. An order by class
reads it twice, and so does the bare read. The smallest margin compares each item with the means of
all classes: its limit is the two reads, the second with the bare products on all cores. Both are
run in turns, and medians given. The cache of the disk is emptied before every run. Memory is the
high-water mark of the resident set of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import machine
from crossfade import Held, Pairs, Upgrade
from crossfade.backfill.gallery import order_gallery
from crossfade.backfill.plan import Plan
from crossfade.backfill.planning import plan
from crossfade.upgrade.apply import apply_file

DIM, CLASSES = 256, 1000
RUNS = (
    ("far-mse", "lifted.safetensors", None),
    ("far-mse", "lifted.safetensors", "names.parquet"),
    ("small-margin", "lifted.safetensors", None),
    ("far-mse", "old.npy", None),
)


def prepare(folder: Path, rows: int) -> None:
    """An upgrade, a plan for each order, and galleries of old and of lifted vectors."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, DIM)).astype(np.float32)

    def items(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(CLASSES, size=count)
        return centres[labels] + rng.normal(size=(count, DIM)).astype(np.float32), labels

    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0].astype(np.float32)
    old, _ = items(4000)
    upgrade = Upgrade(solver="closed_form").fit(old, old @ turn)
    upgrade.save(folder / "upgrade")
    labels = np.arange(2 * CLASSES) % CLASSES
    old = centres[labels] + rng.normal(size=(len(labels), DIM)).astype(np.float32)
    new = old @ turn + 0.1 * rng.normal(size=old.shape).astype(np.float32)
    held = Held.of(Pairs.from_arrays(old, new, labels))
    for order in {order for order, _, _ in RUNS}:
        made = plan(
            upgrade, held, orders=[order], blends=[1.0], ask=["new"], optimize=["mAP"], items=rows
        )
        made.save(folder / order)
    gallery = np.lib.format.open_memmap(folder / "old.npy", "w+", np.float16, (rows, DIM))
    classes = rng.integers(CLASSES, size=rows, dtype=np.int32)
    noise = rng.standard_normal(size=(100_000, DIM), dtype=np.float32)
    for first in range(0, rows, len(noise)):
        some = classes[first : first + len(noise)]
        gallery[first : first + len(noise)] = centres[some] + noise[: len(some)]
    gallery.flush()
    del gallery
    np.save(folder / "labels.npy", classes)
    with pq.ParquetWriter(folder / "names.parquet", pa.schema({"id": pa.string()})) as writer:
        for first in range(0, rows, 1_000_000):
            names = [
                f"item-{i * 7919 % rows:012d}" for i in range(first, min(first + 1_000_000, rows))
            ]
            writer.write_table(pa.table({"id": names}))
    apply_file(upgrade, folder / "old.npy", folder / "lifted.safetensors", direction="forward")


def forget(path: Path) -> None:
    """Ask the system to drop the file from its cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bare(path: Path, order: str) -> float:
    """Seconds of two reads of the file; for the margin, of the products with all means too."""
    buffer = bytearray(16 << 20)
    means = np.random.default_rng(0).normal(size=(DIM, CLASSES)).astype(np.float32)
    begin = time.perf_counter()
    for again in (False, True):
        forget(path)
        with path.open("rb", buffering=0) as file:
            file.seek(path.stat().st_size % (2 * DIM))  # Behind the header, where rows begin.
            while some := file.readinto(buffer):
                if again and order == "small-margin":
                    rows = np.frombuffer(buffer, np.float16)[: some // (2 * DIM) * DIM]
                    np.matmul(rows.reshape(-1, DIM).astype(np.float32), means)
    return time.perf_counter() - begin


def ordered(folder: Path, order: str, gallery: str, names: str | None) -> None:
    """One order in this process; prints seconds and the peak of its memory."""
    from crossfade.files import read_values

    upgrade = Upgrade.load(folder / "upgrade")
    loaded = Plan.load(folder / order, upgrade)
    forget(folder / gallery)
    begin, worked = time.perf_counter(), time.process_time()
    order_gallery(
        loaded,
        upgrade,
        folder / gallery,
        folder / "order.parquet",
        ids=None if names is None else read_values(folder / names),
        labels=read_values(folder / "labels.npy"),
        overwrite=True,
    )
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    print(json.dumps([seconds, worked, peak]))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks order", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for temporary files; needs 11 GB")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.run:
        names = args.run[2] if len(args.run) > 2 else None
        ordered(args.folder, args.run[0], args.run[1], names)
        return
    print(machine())
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        folder = Path(place)
        prepare(folder, args.rows)
        size = (folder / "old.npy").stat().st_size / 1e9
        print(f"{args.rows} × {DIM} float16 ({size:.1f} GB), {CLASSES} classes\n")
        print("| order | gallery | ids | s | CPU s | limit s | ratio | peak MB |")
        print("|---|---|---|---|---|---|---|---|")
        for order, gallery, names in RUNS:
            words = ["order", "--folder", folder, "--run", order, gallery]
            command = [sys.executable, "-m", "benchmarks", *map(str, words)]
            limits, ours = [], []
            for _ in range(args.repeats):
                limits.append(bare(folder / gallery, order))
                ran = subprocess.run(
                    command + ([names] if names else []), check=True, capture_output=True, text=True
                )
                ours.append(json.loads(ran.stdout.splitlines()[-1]))
            seconds, worked, peak = np.median(ours, axis=0)
            limit = float(np.median(limits))
            kind = "lifted" if gallery.startswith("lifted") else "old, lifted on the way"
            ids = "strings" if names else "row numbers"
            print(
                f"| {order} | {kind} | {ids} | {seconds:.1f} | {worked:.1f} | {limit:.1f} | "
                f"{seconds / limit:.2f} | {peak:.0f} |",
                flush=True,
            )
