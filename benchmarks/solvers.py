"""`fast` against `paper` and `closed_form` on the architecture file: time and test quality.

python -m benchmarks solvers --data FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.features import FEATURES
from benchmarks.machine import machine
from benchmarks.quality import RECIPES, markdown, measure

SOLVERS: dict[str, dict[str, Any]] = {
    "closed_form": {"solver": "closed_form"},
    "fast": {},
    "paper, 30 epochs": {"solver": "paper"},
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks solvers", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=list(FEATURES), default="architecture")
    args = parser.parse_args(arguments)
    RECIPES.update(SOLVERS)
    results = [measure(args.data, args.only, recipe, seed=0) for recipe in SOLVERS]
    seconds = {r["recipe"]: r["seconds"] for r in results}
    print(machine(), "\n")
    print(markdown(results))
    fast, paper = seconds["fast"], seconds["paper, 30 epochs"]
    print(f"\nfast / paper: {fast:.1f} s / {paper:.1f} s = {fast / paper:.3f}")
