"""Orders and blends on real features: planned on some held-out rows, measured on others.

python -m benchmarks backfill --data FOLDER --seeds 3 --json FILE --pictures FOLDER

Each upgrade is fitted on the training split. A random half of the test split, which neither the fit
nor the backbones have seen, makes the plan; every order and blend is measured on the other half.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.features import FEATURES, load
from crossfade import Held, Pairs, Upgrade
from crossfade.backfill.picture import draw
from crossfade.backfill.plan import choose
from crossfade.backfill.simulate import Candidate, Simulation, simulate

FILES = ("architecture", "extending-classes", "banking77-minilm")
METRICS = ("cmc@1", "mAP")


def areas(found: Simulation) -> dict[str, dict[str, list[float]]]:
    """By order and blend: M̃ and the fully backfilled gallery, for both metrics."""

    def of(candidate: Candidate) -> dict[str, list[float]]:
        curve = candidate.curve
        return {
            "area": [curve.area(m) for m in METRICS],
            "full": [float(curve.means(m)[-1]) for m in METRICS],
            "reach": [first(curve.means(m) >= found.new.mean(m)) for m in METRICS],
        }

    return {f"{c.order} {c.blend:g}": of(c) for c in found.candidates}


def first(reached: np.ndarray) -> float:
    """The smallest share in percent, 101 where it is never reached."""
    there = np.flatnonzero(reached)
    return float(there[0]) if len(there) else 101.0


def measure(folder: Path, name: str, seed: int, pictures: Path | None) -> dict[str, Any]:
    old, new, labels = load(folder, name, "train")
    upgrade = Upgrade(seed=seed).fit(old, new, labels)
    old, new, labels = load(folder, name, "test")
    mixed = np.random.default_rng(seed).permutation(len(labels))
    halves = [np.sort(mixed[: len(mixed) // 2]), np.sort(mixed[len(mixed) // 2 :])]
    planned, tested = (
        simulate(upgrade, Held.of(Pairs.from_arrays(old[h], new[h], labels[h])), seed=seed)
        for h in halves
    )
    choice = choose(planned, METRICS, seed=seed)
    if pictures is not None and seed == 0:
        shown = choose(
            Simulation(
                [c for c in tested.candidates if c.blend == choice.best.blend]
                + [c for c in tested.candidates if c.order == "random" and c.blend == 1],
                tested.old,
                tested.new,
                None,
                None,
            ),
            METRICS,
        )
        draw(tested, shown, pictures / f"backfill-{name}.png")
    return {
        "data": name,
        "seed": seed,
        "chosen": f"{choice.best.order} {choice.best.blend:g}",
        "recommendation": choice.recommendation,
        "old": [tested.old.mean(m) for m in METRICS],
        "new": [tested.new.mean(m) for m in METRICS],
        "start": [float(tested.candidates[0].curve.means(m)[0]) for m in METRICS],
        "candidates": areas(tested),
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """For each file a table of M̃ by order and blend, then what the plan's choice reaches."""
    lines = []
    for name in dict.fromkeys(r["data"] for r in results):
        group = [r for r in results if r["data"] == name]
        blends = list(dict.fromkeys(k.split()[1] for k in group[0]["candidates"]))
        orders = list(dict.fromkeys(k.split()[0] for k in group[0]["candidates"]))
        lines += ["", f"### {FEATURES[name].title}", ""]
        lines.append("| order | " + " | ".join(f"a = {a}" for a in blends) + " |")
        lines.append("|---" * (1 + len(blends)) + "|")
        for order in orders:
            cells = []
            for a in blends:
                values = np.array([r["candidates"][f"{order} {a}"]["area"] for r in group])
                mean, spread = values.mean(axis=0), values.std(axis=0)
                cells.append(f"{mean[0]:.2f} / {mean[1]:.2f} ± {spread[0]:.2f} / {spread[1]:.2f}")
            lines.append(f"| {order} | " + " | ".join(cells) + " |")
        full = {
            a: np.mean([r["candidates"][f"{orders[0]} {a}"]["full"] for r in group], axis=0)
            for a in blends
        }
        ends = (f"{full[a][0]:.1f} / {full[a][1]:.1f}" for a in blends)
        lines.append("| *fully backfilled* | " + " | ".join(ends) + " |")
        lines.append("")
        for r in group:
            mine = r["candidates"][r["chosen"]]
            plain = r["candidates"]["random 1"]["area"]
            best = max(np.mean(c["area"]) for c in r["candidates"].values())
            gap = best - np.mean(mine["area"])
            lines.append(
                f"- seed {r['seed']}: chosen {r['chosen']} ({r['recommendation']}), M̃ "
                f"{mine['area'][0]:.2f} / {mine['area'][1]:.2f} against random replacement "
                f"{plain[0]:.2f} / {plain[1]:.2f}; full {mine['full'][0]:.1f} / "
                f"{mine['full'][1]:.1f} against new/new {r['new'][0]:.1f} / {r['new'][1]:.1f}; "
                f"new/new reached at {mine['reach'][0]:.0f} % / {mine['reach'][1]:.0f} %; "
                f"{gap:.2f} below the best with hindsight"
            )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks backfill", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=FILES, default=list(FILES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args(arguments)
    results = []
    for seed in range(args.seeds):
        for name in args.only:
            results.append(measure(args.data, name, seed, args.pictures))
            print(name, seed, results[-1]["chosen"], file=sys.stderr)
            if args.json:
                args.json.write_text(json.dumps(results))
    print(markdown(results))
