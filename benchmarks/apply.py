"""Applying an upgrade to many vectors, against the bare matrix products over the same array.

    python -m benchmarks apply [--rows 10000000]

In memory: `Upgrade.backward` and `.forward` against numpy's products alone. In files: `apply_file`
from npy to npy against a plain loop that reads, multiplies, writes and syncs. Then many float16
rows through the command line, with the peak of its resident memory.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.machine import alternate, machine
from crossfade import Upgrade
from crossfade.maps import Mlp
from crossfade.upgrade.apply import apply_file

SHAPES = ((256, 384, 400_000), (384, 768, 200_000), (512, 1024, 100_000), (1024, 1024, 100_000))


def fitted(d: int, n: int, **settings: object) -> Upgrade:
    rng = np.random.default_rng(0)
    new = rng.normal(size=(max(4 * n, 2000), n)).astype(np.float32)
    old = new[:, :d] + 0.1 * rng.normal(size=(len(new), d)).astype(np.float32)
    return Upgrade(**settings).fit(old, new)  # type: ignore[arg-type]


def bare_mlp(mlp: Mlp, x: np.ndarray) -> np.ndarray:
    assert mlp.skip is not None
    h = x
    for weight, _ in mlp.layers:
        h = h @ weight.T
    return h, x @ mlp.skip[0].T  # type: ignore[return-value]


def in_memory(repeats: int) -> None:
    print("| map | rows × in → out | ours s | bare products s | ratio |\n|---|---|---|---|---|")
    for d, n, rows in SHAPES:
        rng = np.random.default_rng(1)
        old = rng.normal(size=(rows, d)).astype(np.float32)
        new = rng.normal(size=(rows, n)).astype(np.float32)
        linear = fitted(d, n, solver="closed_form")
        b, f = (m.map.tensors()["weight"] for m in (linear.backward_, linear.forward_))
        rowed = [
            ("B orthogonal", n, lambda u=linear, x=new: u.backward(x), lambda w=b, x=new: x @ w.T),
            ("F affine", d, lambda u=linear, x=old: u.forward(x), lambda w=f, x=old: x @ w.T),
        ]
        if d == 512:
            deep = fitted(d, n, epochs=1)
            m = deep.forward_.map
            if isinstance(m, Mlp):
                rowed.append(
                    (
                        "F mlp",
                        d,
                        lambda u=deep, x=old: u.forward(x),
                        lambda m=m, x=old: bare_mlp(m, x),
                    )
                )
        for name, width, ours, peer in rowed:
            mine, bare, ratio = alternate(ours, peer, repeats)
            print(f"| {name} | {rows} × {width} → {n} | {mine:.2f} | {bare:.2f} | {ratio:.2f} |")


def plain_loop(source: Path, target: Path, weight: np.ndarray, batch: int = 65536) -> None:
    """What one would write by hand: read, multiply, write, sync."""
    x = np.load(source, mmap_mode="r")
    shape = (len(x), len(weight))
    out = np.lib.format.open_memmap(target, "w+", dtype=np.float32, shape=shape)
    for first in range(0, len(x), batch):
        out[first : first + batch] = x[first : first + batch] @ weight.T
    out.flush()
    with target.open("rb") as file:
        os.fsync(file.fileno())


def in_files(folder: Path, repeats: int) -> None:
    print("\n| npy → npy, float32 | ours s | plain loop s | ratio |\n|---|---|---|---|")
    for d, n, rows in SHAPES[1:3]:
        upgrade = fitted(d, n, solver="closed_form")
        source = folder / "in.npy"
        np.save(source, np.random.default_rng(2).normal(size=(rows, n)).astype(np.float32))
        weight = upgrade.backward_.map.tensors()["weight"]
        mine, bare, ratio = alternate(
            lambda u=upgrade, s=source: apply_file(
                u, s, folder / "ours.npy", direction="backward", overwrite=True
            ),
            lambda s=source, w=weight: plain_loop(s, folder / "bare.npy", w),
            repeats,
        )
        print(f"| {rows} × {n} → {n} | {mine:.2f} | {bare:.2f} | {ratio:.2f} |")


def many_rows(folder: Path, rows: int) -> None:
    d, n = 256, 384
    fitted(d, n, solver="closed_form").save(folder / "upgrade")
    rng = np.random.default_rng(3)
    block = rng.normal(size=(100_000, d)).astype(np.float16)
    source = np.lib.format.open_memmap(folder / "many.npy", "w+", np.float16, (rows, d))
    for first in range(0, rows, len(block)):
        source[first : first + len(block)] = block[: rows - first]
    source.flush()
    del source
    # The high-water mark of the process itself: getrusage would add what this one held at the fork.
    status, peak_file = "/proc/self/status", folder / "peak"
    program = (
        "import atexit, shutil; from crossfade.cli import main; "
        f"atexit.register(shutil.copyfile, {status!r}, {str(peak_file)!r}); main()"
    )
    words = ["apply", folder / "upgrade", folder / "many.npy", folder / "lifted.npy"]
    begin = time.perf_counter()
    command = [sys.executable, "-c", program, *map(str, words), "--direction", "forward"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    peak = int(re.search(r"VmHWM:\s+(\d+)", peak_file.read_text())[1]) / 1024  # type: ignore[index]
    size = (folder / "many.npy").stat().st_size / 1e9
    print(
        f"\n`crossfade apply`, {rows} × {d} float16 ({size:.1f} GB) → {n}: {seconds:.0f} s, "
        f"{rows / seconds / 1e6:.2f} million rows/s, peak resident memory {peak:.0f} MB"
    )
    lifted = np.load(folder / "lifted.npy", mmap_mode="r")
    assert lifted.shape == (rows, n) and lifted.dtype == np.float16


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks apply", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the memory run")
    parser.add_argument("--repeats", type=int, default=7, help="of the others; 0 leaves them out")
    parser.add_argument("--folder", type=Path, help="for temporary files; needs 15 GB")
    args = parser.parse_args(arguments)
    print(machine())
    print(f"median of {args.repeats} turns\n")
    if args.repeats:
        in_memory(args.repeats)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.repeats:
            in_files(Path(folder), args.repeats)
        if args.rows:
            many_rows(Path(folder), args.rows)
