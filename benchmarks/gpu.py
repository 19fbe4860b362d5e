"""What a GPU is for: `apply` at the speed of the bus or the disk, curves, and a large evaluation.

    python -m benchmarks gpu [--device cuda] [--folder DIR]

`apply` in memory is beside a bare copy through the device (up and down again, from and to the same
pinned memory, nothing mapped), and beside the bus alone (both ways at once, nothing staged). From
file to file it is beside a plain copy of the same bytes. Both start with a file that is not in the
cache, and end when the bytes are on the disk. Evaluation is beside the bare product on the device,
a curve beside one evaluation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.evaluate import METRICS, made
from benchmarks.machine import machine
from crossfade import Upgrade
from crossfade.backfill import curves
from crossfade.maps.on_device import IN_FLIGHT, DeviceMap, Flight
from crossfade.retrieval import SameClass, measure
from crossfade.retrieval.torch_engine import exact_product
from crossfade.upgrade.apply import apply_file

DIM, BLOCK = 1024, 16_384


class Through(DeviceMap):
    """Up and down again: everything that a map does but the map."""

    def _map(self, x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        return x, torch.ones((), dtype=torch.bool, device=self.device)


def fitted(rows: int) -> Upgrade:
    new, _ = made(rows, DIM, 100)
    return Upgrade(solver="closed_form").fit(new + 0.1 * made(rows, DIM, 100, 1)[0], new)


def seconds(work: Callable[[], object], device: str, repeats: int) -> float:
    """The median of some turns, after one to warm up."""
    found = []
    for _ in range(repeats + 1):
        wait(device)
        begin = time.perf_counter()
        work()
        wait(device)
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def flown(there: DeviceMap, x: np.ndarray) -> None:
    flying: deque[Flight] = deque()
    for first in range(0, len(x), BLOCK):
        flying.append(there.send(x[first : first + BLOCK], x.dtype))
        if len(flying) >= IN_FLIGHT:
            assert flying.popleft().result() is not None
    while flying:
        assert flying.popleft().result() is not None


def bus(x: np.ndarray, device: str) -> Callable[[], None]:
    """The same bytes both ways at once, from and to memory that is pinned already."""
    pinned = device.startswith("cuda")
    up, down = (torch.empty((BLOCK, DIM), dtype=torch.half, pin_memory=pinned) for _ in range(2))
    there, back = (torch.zeros((BLOCK, DIM), dtype=torch.half, device=device) for _ in range(2))
    streams = [torch.cuda.Stream() for _ in range(2)] if pinned else []

    def work() -> None:
        for _ in range(0, len(x), BLOCK):
            if not streams:
                there.copy_(up)
                down.copy_(back)
                continue
            with torch.cuda.stream(streams[0]):
                there.copy_(up, non_blocking=True)
            with torch.cuda.stream(streams[1]):
                down.copy_(back, non_blocking=True)

    return work


def in_memory(upgrade: Upgrade, rows: int, device: str, repeats: int) -> None:
    block = made(BLOCK, DIM, 100)[0].astype(np.float16)
    x = np.concatenate([block] * max(1, rows // BLOCK))
    size = 2 * x.nbytes / 1e9
    print(f"apply in memory, {len(x):,} × {DIM} → {DIM} float16, {size:.1f} GB up and down:\n")
    print("| way | s | GB/s | of the copy |\n|---|---|---|---|")
    directed = upgrade.backward_
    ways: dict[str, Callable[[], object]] = {
        "a copy through the device": partial(flown, Through(directed, device), x),
        "B": partial(flown, DeviceMap(directed, device), x),
        "F": partial(flown, DeviceMap(upgrade.forward_, device), x),
        "the bus alone": bus(x, device),
    }
    found = {name: seconds(way, device, repeats) for name, way in ways.items()}
    copy = found["a copy through the device"]
    for name, took in found.items():
        print(f"| {name} | {took:.3f} | {size / took:.1f} | {took / copy:.2f} |", flush=True)
    mapped = DeviceMap(directed, device).send(block, block.dtype).result()
    assert mapped is not None
    worst = np.abs(mapped.astype(np.float32) - upgrade.backward(block)).max()
    print(f"\nlargest difference from the CPU: {worst:.1e}\n")


def forget(path: Path) -> None:
    """Drop this one file from the cache of the disk; what others have in it stays."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copied(source: Path, target: Path) -> None:
    buffer = bytearray(BLOCK * DIM * 2)
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        while count := read.readinto(buffer):
            write.write(memoryview(buffer)[:count])
        os.fsync(write.fileno())


def in_files(upgrade: Upgrade, folder: Path, rows: int, device: str, repeats: int) -> None:
    source, target = folder / "in.npy", folder / "out.npy"
    block = made(BLOCK, DIM, 100)[0].astype(np.float16)
    out = np.lib.format.open_memmap(source, "w+", np.float16, (rows, DIM))
    for first in range(0, rows, BLOCK):
        out[first : first + BLOCK] = block[: rows - first]
    out.flush()
    del out
    size = 2 * source.stat().st_size / 1e9

    def apply(on: str) -> None:
        apply_file(upgrade, source, target, direction="backward", overwrite=True, device=on)

    ways: dict[str, Callable[[], None]] = {
        "a copy of the file": lambda: copied(source, target),
        f"apply --device {device}": lambda: apply(device),
        "apply": lambda: apply("cpu"),
    }
    turns: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            target.unlink(missing_ok=True)
            forget(source)
            begin = time.perf_counter()
            way()
            turns[name].append(time.perf_counter() - begin)
    print(f"apply from file to file, {rows:,} × {DIM} float16, {size:.1f} GB, read from disk:\n")
    print("| way | s | GB/s | of the copy |\n|---|---|---|---|")
    copy = statistics.median(turns["a copy of the file"])
    for name, found in turns.items():
        took = statistics.median(found)
        print(f"| {name} | {took:.2f} | {size / took:.2f} | {took / copy:.2f} |", flush=True)
    print()


def evaluated(rows: int, device: str, repeats: int) -> None:
    x, labels = made(rows, DIM, max(2, rows // 100))
    relevance = SameClass.among(labels)
    on_device = torch.from_numpy(x).to(device)

    def bare() -> None:
        for first in range(0, rows, 1024):
            exact_product(on_device[first : first + 1024], on_device)

    def ours() -> dict[str, float]:
        return measure(x, x, relevance, METRICS, device=device).means()

    took, limit = seconds(ours, device, repeats), seconds(bare, device, repeats)
    print(f"evaluate, {rows:,} × {rows:,} × {DIM}, 100 of a class, vectors in the host's memory:")
    print(f"{took:.2f} s, bare product {limit:.2f} s, ratio {took / limit:.2f}; {ours()}\n")
    few = slice(min(rows, 5000))
    small = SameClass.among(labels[few])
    pair = [measure(x[few], x[few], small, METRICS, device=d).means() for d in ("cpu", device)]
    print(f"the first {few.stop:,} on the CPU and there: {pair[0]}, {pair[1]}\n", flush=True)


def curved(rows: int, device: str, repeats: int) -> None:
    q, labels = made(rows, 256, 100)
    noise = np.random.default_rng(1).standard_normal(q.shape, dtype=np.float32)
    before, order = q + 0.05 * noise, np.random.default_rng(2).permutation(rows)
    relevance = SameClass.among(labels)

    def curve() -> float:
        found = curves(q, before, q, {"it": order}, relevance, METRICS, device=device)
        return found["it"].area("mAP")

    def once() -> None:
        measure(q, before, relevance, METRICS, device=device)

    took, one = seconds(curve, device, repeats), seconds(once, device, repeats)
    print(f"a curve of 101 points, {rows:,} × {rows:,} × 256, 100 classes: {took:.2f} s, one")
    print(f"evaluation there {one:.2f} s, ratio {took / one:.1f}; area of mAP {curve():.3f}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu:0 is torch's CPU, to try it out")
    parser.add_argument("--folder", type=Path, help="for files; needs 5 GB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the runs in memory")
    parser.add_argument("--file-rows", type=int, default=1_000_000, help="of the file")
    parser.add_argument("--evaluate-rows", type=int, default=100_000)
    parser.add_argument("--curve-rows", type=int, default=10_000)
    args = parser.parse_args(arguments)
    cuda = args.device.startswith("cuda")
    print(machine())
    print(torch.cuda.get_device_name() if cuda else args.device, "torch", torch.__version__, "\n")
    upgrade = fitted(max(3000, min(args.rows, 20_000)))
    in_memory(upgrade, args.rows, args.device, args.repeats)
    evaluated(args.evaluate_rows, args.device, args.repeats)
    curved(args.curve_rows, args.device, args.repeats)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        in_files(upgrade, Path(folder), args.file_rows, args.device, args.repeats)
