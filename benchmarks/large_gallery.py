"""The order of a gallery of a hundred million rows: time and memory by the row.

    python -m benchmarks large_gallery [--rows 1000000 10000000 100000000] [--dim 768]
                                       [--engine local|ray]

A Lance table of float16 vectors that F has lifted, in fragments of a million rows that are all the
same file: what is read is as much as if each had its own, and a disk need not hold 154 GB. So the
file is read from memory after the first time, and the disk is no part of the measure. An order by
class goes through it twice. Each size is ordered in a process of its own. Memory is that of the
process and of all it has started that no file stands behind; what is as large as the gallery lies
in files beside the order that is made.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import machine
from benchmarks.scale import Peak
from crossfade import Held, Pairs, Upgrade
from crossfade.backfill.plan import Plan
from crossfade.backfill.planning import plan
from crossfade.files.arrow import to_arrow

FRAGMENT, CLASSES = 1_000_000, 1000
_BATCH = 50_000


def prepare(folder: Path, dim: int) -> None:
    """An upgrade, a plan that goes far from the class mean first, and a fragment of the gallery."""
    import lance

    from crossfade.upgrade.apply import DIRECTION, SPACE, UPGRADE

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, dim)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    labels = np.arange(2 * CLASSES) % CLASSES
    old = centres[labels] + rng.normal(size=(len(labels), dim)).astype(np.float32)
    new = old @ turn + 0.1 * rng.normal(size=old.shape).astype(np.float32)
    upgrade = Upgrade(solver="closed_form").fit(old, new)
    upgrade.save(folder / "upgrade")
    held = Held.of(Pairs.from_arrays(old, new, labels))
    made = plan(upgrade, held, orders=["far-mse"], blends=[1.0], ask=["new"], optimize=["mAP"])
    made.save(folder / "plan")
    noise = rng.standard_normal(size=(_BATCH, dim), dtype=np.float32)
    kind = pa.list_(pa.float16(), dim)
    tags = {SPACE: "shared", UPGRADE: upgrade.hash_, DIRECTION: "forward"}
    schema = pa.schema({"vector": kind}).with_metadata(tags)

    def batches() -> Any:
        for first in range(0, FRAGMENT, _BATCH):
            some = centres[np.arange(first, first + _BATCH) % CLASSES]
            rows = (some + np.roll(noise, first // _BATCH, axis=0)).astype(np.float16)
            yield pa.record_batch([to_arrow(rows).cast(kind)], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(reader, str(folder / "rows.lance"), max_rows_per_file=FRAGMENT)


def made_of(folder: Path, rows: int) -> Path:
    """A version of the table with so many rows, all of its fragments the first one's file."""
    import lance

    path = folder / "rows.lance"
    dataset = lance.dataset(str(path), version=1)
    told = json.loads(json.dumps(dataset.get_fragments()[0].metadata.to_json()))
    fragments = [
        lance.FragmentMetadata.from_json(json.dumps(told | {"id": number}))
        for number in range(rows // FRAGMENT)
    ]
    overwrite = lance.LanceOperation.Overwrite(dataset.schema, fragments)
    latest = lance.dataset(str(path)).version
    lance.LanceDataset.commit(str(path), overwrite, read_version=latest)
    return path


def ordered(folder: Path, rows: int, engine: str) -> None:
    """In this process: seconds, the peak of its memory, and how many ids were written."""
    from crossfade.backfill.gallery import order_gallery
    from crossfade.cli.allocator import share_heaps
    from crossfade.engines import open_engine

    share_heaps()
    upgrade = Upgrade.load(folder / "upgrade")
    loaded = Plan.load(folder / "plan", upgrade)
    labels = np.resize(np.arange(FRAGMENT, dtype=np.int32) % CLASSES, rows)
    workers = open_engine(engine)  # type: ignore[arg-type]
    peak, begin = Peak(), time.perf_counter()
    count = order_gallery(
        loaded,
        upgrade,
        folder / "rows.lance",
        folder / "order.parquet",
        labels=labels,
        overwrite=True,
        engine=workers,
    )
    seconds = time.perf_counter() - begin
    if workers is not None:
        workers.close()
    print(json.dumps([seconds, peak.end(), count]))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks large_gallery", description=__doc__)
    sizes = [1_000_000, 10_000_000, 100_000_000]
    parser.add_argument("--rows", type=int, nargs="+", default=sizes)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--folder", type=Path, help="for temporary files; needs 7 GB")
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.run:
        ordered(args.folder, args.run, args.engine)
        return
    print(machine(), "\n")
    print("| rows | dimensions | engine | s | µs a row | GB read a second | peak MB |")
    print("|---" * 7 + "|", flush=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        folder = Path(place)
        prepare(folder, args.dim)
        for rows in args.rows:
            made_of(folder, rows)
            words = ["large_gallery", "--folder", folder, "--run", rows, "--engine", args.engine]
            command = [sys.executable, "-m", "benchmarks", *map(str, words)]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                raise SystemExit(ran.stderr)
            seconds, peak, count = json.loads(ran.stdout.splitlines()[-1])
            assert count == rows
            size = 2 * rows * 2 * args.dim / 1e9
            print(
                f"| {rows:,} | {args.dim} | {args.engine} | {seconds:.1f} | "
                f"{seconds / rows * 1e6:.2f} | {size / seconds:.2f} | {peak:,.0f} |",
                flush=True,
            )
