"""A backfilling curve of 101 points against one evaluation of the same gallery.

python -m benchmarks curve
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.evaluate import made
from benchmarks.machine import alternate, machine
from crossfade.backfill import curves
from crossfade.retrieval import SameClass, measure

METRICS = ("cmc@1", "mAP")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks curve", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(arguments)
    after, labels = made(args.rows, 256, 100)
    rng = np.random.default_rng(1)
    before = after + 0.05 * rng.standard_normal(after.shape, dtype=np.float32)
    order = rng.permutation(args.rows)
    relevance = SameClass.among(labels)
    print(machine())
    print(f"{args.rows} × {args.rows} × 256, 100 classes, median of {args.repeats} turns\n")
    print("| points | curve s | one evaluation s | ratio |\n|---|---|---|---|")
    for points in (2, 11, 101):
        mine, single, ratio = alternate(
            lambda points=points: curves(
                after, before, after, {"order": order}, relevance, METRICS, points=points
            ),
            lambda: measure(after, before, relevance, METRICS),
            args.repeats,
        )
        print(f"| {points} | {mine:.2f} | {single:.2f} | {ratio:.2f} |")
