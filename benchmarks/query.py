"""One live query through B, against a bare matrix-vector product of the same size.

python -m benchmarks query
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.machine import alternate, machine
from crossfade import Upgrade

CALLS = 2000


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks query", description=__doc__)
    parser.add_argument("--dims", nargs="*", type=int, default=[384, 768, 1024, 1536])
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args(arguments)
    print(machine())
    print(f"{CALLS} queries in a row, median of {args.repeats} turns\n")
    print("| dimension | B(query) µs | W @ query µs | ratio |\n|---|---|---|---|")
    rng = np.random.default_rng(0)
    for n in args.dims:
        new = rng.normal(size=(2 * n, n)).astype(np.float32)
        upgrade = Upgrade(solver="closed_form").fit(new + 0.1, new)
        weight = np.ascontiguousarray(upgrade.backward_.map.tensors()["weight"])
        query = rng.normal(size=n).astype(np.float32)

        def ours(upgrade: Upgrade = upgrade, query: np.ndarray = query) -> None:
            for _ in range(CALLS):
                upgrade.backward(query)

        def peer(weight: np.ndarray = weight, query: np.ndarray = query) -> None:
            for _ in range(CALLS):
                weight @ query

        mine, bare, ratio = alternate(ours, peer, args.repeats)
        print(f"| {n} | {mine / CALLS * 1e6:.1f} | {bare / CALLS * 1e6:.1f} | {ratio:.2f} |")
