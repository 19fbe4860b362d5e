"""All eight cases on test rows no fit has seen, several seeds: the table of docs/results.md.

python -m benchmarks quality --data FOLDER --seeds 3 --json quality.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.features import FEATURES, load
from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.solvers.problem import Rows, Selection

RECIPES: dict[str, dict[str, Any]] = {
    "closed_form": {"solver": "closed_form"},
    "fast": {},
    "fast, B_λ λ=12": {"backward_map": "near-orthogonal", "lam": 12.0},
    "fast, B_λ λ=3": {"backward_map": "near-orthogonal", "lam": 3.0},
    "fast, no labels": {},
}


def measure(folder: Path, name: str, recipe: str, seed: int) -> dict[str, Any]:
    """Fit on the training split, score every case on the test split."""
    old, new, labels = load(folder, name, "train")
    start = time.perf_counter()
    upgrade = Upgrade(seed=seed, **RECIPES[recipe])
    upgrade.fit(old, new, None if recipe.endswith("no labels") else labels)
    seconds = time.perf_counter() - start
    old, new, labels = load(folder, name, "test")
    reached = min(upgrade.old_dim_, upgrade.new_dim_)
    rows = Rows(old, new, upgrade.place(old)[:, :reached], labels)
    selection = Selection(rows, CASES, ("cmc@1", "mAP"))
    scores = selection.scores(upgrade.backward, upgrade.forward)
    return {
        "data": name,
        "recipe": recipe,
        "seed": seed,
        "seconds": seconds,
        "scores": scores,
        "lambda_reached": upgrade.lambda_reached_,
        "notes": upgrade.notes_,
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """One row for each upgrade and recipe: CMC-Top1 / mAP, mean ± standard deviation over seeds."""
    lines = ["| upgrade | recipe | s | ‖WWᵀ−I‖ | " + " | ".join(CASES) + " |"]
    lines.append("|---" * (len(CASES) + 4) + "|")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["data"], result["recipe"]), []).append(result)
    for (name, recipe), group in groups.items():
        cells = []
        for case in CASES:
            values = np.array([[r["scores"][case][m] for m in ("cmc@1", "mAP")] for r in group])
            mean, spread = values.mean(axis=0), values.std(axis=0)
            cell = f"{mean[0]:.1f} / {mean[1]:.1f}"
            cells.append(cell + (f" ± {spread[0]:.1f} / {spread[1]:.1f}" if spread.any() else ""))
        seconds = np.mean([r["seconds"] for r in group])
        distance = np.mean([r["lambda_reached"] for r in group])
        reached = f"{distance:.2f}" if distance > 1e-3 else "0"
        lines.append(
            f"| {FEATURES[name].title} | {recipe} | {seconds:.0f} | {reached} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(FEATURES), default=list(FEATURES))
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    results = []
    for name in args.only:
        for recipe in args.recipes:
            for seed in range(args.seeds):
                results.append(measure(args.data, name, recipe, seed))
                print(name, recipe, seed, f"{results[-1]['seconds']:.1f} s", file=sys.stderr)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
    print(markdown(results))
