"""All eight cases on test rows no fit has seen, several seeds: the table of docs/results.md.

python -m benchmarks quality --data FOLDER --seeds 3 --json quality.json
python -m benchmarks quality --data FOLDER --seeds 3 --recipes closed_form fast --asked

`--text` is `python -m benchmarks text`: unlabelled text, both models along the filling.

`--asked` is the table of both models on the query, beside the best single ways: with the weights
that need no data, and, as "chosen", with those that a plan would choose: on one half of the queries
for the other, both ways.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import text
from benchmarks.features import FEATURES, load
from crossfade import Held, Pairs, Upgrade, evaluate
from crossfade.asking import Both
from crossfade.backfill.weights import Ruler
from crossfade.cases import CASES
from crossfade.compatibility.verdicts import ASKED
from crossfade.retrieval import measure as rank
from crossfade.solvers.problem import Rows, Selection

METRICS = ("cmc@1", "mAP")
CHOSEN = ("both/old chosen", "both/F(old) chosen", "both/new chosen")
SHOWN = (
    *("old/old", "B(new)/old", "both/old", "both/old chosen", "blend/old"),
    *("B(new)/F(old)", "both/F(old) chosen", "new/new", "both/new", "both/new chosen"),
)
RECIPES: dict[str, dict[str, Any]] = {
    "closed_form": {"solver": "closed_form"},
    "fast": {},
    "fast, B_λ λ=12": {"backward_map": "near-orthogonal", "lam": 12.0},
    "fast, B_λ λ=3": {"backward_map": "near-orthogonal", "lam": 3.0},
    "fast, no labels": {},
}


def measure(folder: Path, name: str, recipe: str, seed: int, asked: bool = False) -> dict[str, Any]:
    """Fit on the training split, score every case on the test split."""
    old, new, labels = load(folder, name, "train")
    start = time.perf_counter()
    upgrade = Upgrade(seed=seed, **RECIPES[recipe])
    upgrade.fit(old, new, None if recipe.endswith("no labels") else labels)
    seconds = time.perf_counter() - start
    old, new, labels = load(folder, name, "test")
    reached = min(upgrade.old_dim_, upgrade.new_dim_)
    rows = Rows(old, new, upgrade.in_shared_space(old)[:, :reached], labels)
    selection = Selection(rows, CASES, METRICS)
    scores = selection.scores(upgrade.backward, upgrade.forward)
    if asked:
        held = Held.of(Pairs.from_arrays(old, new, labels))
        found = evaluate(upgrade, held, metrics=METRICS, resamples=100, definition=False)
        scores |= {case: found.means()[case] for case in ASKED}
        scores |= chosen(upgrade, held, seed)
    return {
        "data": name,
        "recipe": recipe,
        "seed": seed,
        "seconds": seconds,
        "scores": scores,
        "lambda_reached": upgrade.lambda_reached_,
        "notes": upgrade.notes_,
    }


def chosen(upgrade: Upgrade, held: Held, seed: int) -> dict[str, dict[str, float]]:
    """Each half of the queries, with weights that the other half has chosen."""
    assert held.query_old is not None and held.relevance is not None
    mapped = upgrade.backward(held.gallery_new)
    both = Both(
        upgrade.as_stored(held.query_old),
        upgrade.backward(held.query_new),
        upgrade.as_stored(held.gallery_old),
        upgrade.forward(held.gallery_old),
        seed=seed,
    )
    halves = np.array_split(np.random.default_rng(seed).permutation(held.queries), 2)
    values: dict[str, dict[str, list[float]]] = {c: {m: [] for m in METRICS} for c in CHOSEN}
    for mine, others in (halves, halves[::-1]):
        weights = Ruler(held.relevance, METRICS, seed, among=others).of_both(both, mapped)
        print("  ", weights, file=sys.stderr)
        ways = (both.as_old(weights), both.as_lifted(weights), both.as_filled(mapped, weights))
        for case, asked in zip(CHOSEN, ways, strict=True):
            found = rank(asked.queries, asked.items, held.relevance, METRICS, distance="dot")
            for metric in METRICS:
                some = found.values[metric][mine]
                values[case][metric] += (100 * some[np.isfinite(some)]).tolist()
    return {c: {m: float(np.mean(v)) for m, v in by.items()} for c, by in values.items()}


def markdown(results: list[dict[str, Any]], cases: Sequence[str] = CASES) -> str:
    """One row for each upgrade and recipe: CMC-Top1 / mAP, mean ± standard deviation over seeds."""
    lines = ["| upgrade | recipe | s | ‖WWᵀ−I‖ | " + " | ".join(cases) + " |"]
    lines.append("|---" * (len(cases) + 4) + "|")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["data"], result["recipe"]), []).append(result)
    for (name, recipe), group in groups.items():
        cells = []
        for case in cases:
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
    if "--text" in arguments:
        text.main([word for word in arguments if word != "--text"])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(FEATURES), default=list(FEATURES))
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--asked", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    results = []
    for name in args.only:
        for recipe in args.recipes:
            for seed in range(args.seeds):
                results.append(measure(args.data, name, recipe, seed, args.asked))
                print(name, recipe, seed, f"{results[-1]['seconds']:.1f} s", file=sys.stderr)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
    print(markdown(results, SHOWN if args.asked else CASES))
