"""Orders and blends on real features: planned on some held-out rows, measured on others.

python -m benchmarks backfill --data FOLDER --seeds 3 --json FILE --pictures FOLDER

Each upgrade is fitted on the training split. A random half of the test split, which neither the fit
nor the backbones have seen, makes the plan; every order and blend is measured on the other half.

Which blends and volumes a plan tries was settled on the planning halves of seeds 0 and 1. With
--untouched, plans are measured on the quarter of the test split that is in neither of them, and
made on a random two thirds of the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.features import FEATURES, load
from crossfade import Held, Pairs, Upgrade
from crossfade.backfill.choose import choose
from crossfade.backfill.picture import draw
from crossfade.backfill.simulate import (
    BLENDS,
    FALLING,
    VOLUMES,
    Candidate,
    Simulation,
    simulate,
)

FILES = ("architecture", "extending-classes", "banking77-minilm")
METRICS = ("cmc@1", "mAP")
CONSTANT = [str(how) for how in BLENDS]


def areas(found: Simulation) -> dict[str, dict[str, list[float]]]:
    """By order and blend: M̃ and the fully backfilled gallery, for both metrics."""

    def of(candidate: Candidate) -> dict[str, list[float]]:
        curve = candidate.curve
        return {
            "area": [curve.area(m) for m in METRICS],
            "full": [float(curve.means(m)[-1]) for m in METRICS],
            "reach": [first(curve.means(m) >= found.new.mean(m)) for m in METRICS],
        }

    return {named(c): of(c) for c in found.candidates}


def named(candidate: Candidate) -> str:
    return f"{candidate.order} | {candidate.blend}"


def first(reached: np.ndarray) -> float:
    """The smallest share in percent, 101 where it is never reached."""
    there = np.flatnonzero(reached)
    return float(there[0]) if len(there) else 101.0


def fitted(folder: Path, name: str, seed: int, kept: Path | None) -> Upgrade:
    """Fitted on the training split, or read from where an earlier run has kept it."""
    if kept is not None and (kept / f"{name}-{seed}").exists():
        return Upgrade.load(kept / f"{name}-{seed}")
    upgrade = Upgrade(seed=seed).fit(*load(folder, name, "train"))
    if kept is not None:
        upgrade.save(kept / f"{name}-{seed}")
    return upgrade


def halves(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to plan on, and rows to measure on."""
    mixed = np.random.default_rng(seed).permutation(rows)
    return np.sort(mixed[: rows // 2]), np.sort(mixed[rows // 2 :])


def untouched(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same, measured where no choice of ours was made; these rows are the same for all seeds.

    >>> here, there = untouched(1000, 2)
    >>> bool(set(there.tolist()) & {*halves(1000, 0)[0], *halves(1000, 1)[0]})
    False
    """
    there = np.intersect1d(halves(rows, 0)[1], halves(rows, 1)[1])
    rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(rows), there))
    return np.sort(rest[: 2 * len(rest) // 3]), there


def measure(
    folder: Path, name: str, seed: int, pictures: Path | None, kept: Path | None, clean: bool
) -> dict[str, Any]:
    upgrade = fitted(folder, name, seed, kept)
    old, new, labels = load(folder, name, "test")
    split = (untouched if clean else halves)(len(labels), seed)
    here, there = (Held.of(Pairs.from_arrays(old[h], new[h], labels[h])) for h in split)
    planned, tested = (simulate(upgrade, held, seed=seed, asking=["new"]) for held in (here, there))
    choice = choose(planned, METRICS, seed=seed)
    best = choice.best
    # Scores are turned down along the direction that the plan found, not one of the other half.
    assert planned.quiet is not None
    mine = simulate(
        upgrade,
        there,
        orders=[best.order],
        blends=[best.blend],
        asking=["new"],
        seed=seed,
        quiet=planned.quiet,
    )
    kept_candidates = [c for c in tested.candidates if named(c) != named(best)]
    tested = replace(tested, candidates=[*kept_candidates, *mine.candidates])
    if pictures is not None and seed == 0:
        shown = choose(replace(tested, candidates=mine.candidates, again=mine.again), METRICS)
        draw(tested, shown, pictures / f"backfill-{name}.png")
    return {
        "data": name,
        "seed": seed,
        "chosen": named(best),
        "recommendation": choice.recommendation,
        "quiet": planned.quiet.loudness,
        "old": [tested.old.mean(m) for m in METRICS],
        "new": [tested.new.mean(m) for m in METRICS],
        "start": [float(tested.candidates[0].curve.means(m)[0]) for m in METRICS],
        "candidates": areas(tested),
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """For each file tables of M̃ by order and blend, then what the plan's choice reaches."""
    lines = []
    for name in dict.fromkeys(r["data"] for r in results):
        group = [r for r in results if r["data"] == name]
        common = [k for k in group[0]["candidates"] if all(k in r["candidates"] for r in group)]
        orders = list(dict.fromkeys(k.split(" | ")[0] for k in common))
        lines += ["", f"### {FEATURES[name].title}", ""]
        lines += table(group, orders, CONSTANT, [f"a = {a}" for a in CONSTANT])
        full = [np.mean([r["candidates"][f"random | {a}"]["full"] for r in group], axis=0)
                for a in CONSTANT]  # fmt: skip
        ends = (f"{x[0]:.1f} / {x[1]:.1f}" for x in full)
        lines.append("| *fully backfilled* | " + " | ".join(ends) + " |")
        volumes = [f", volume {v:g}→1" if v < 1 else "" for v in VOLUMES]
        rows = [f"{order} | {a:g}→{b:g}" for order in orders for a, b in FALLING]
        rows = [row for row in rows if all(row + v in common for v in volumes)]
        lines += ["", *table(group, rows, volumes, [f"volume {v:g}→1" for v in VOLUMES], "")]
        lines.append("")
        for r in group:
            mine = r["candidates"][r["chosen"]]
            plain = r["candidates"]["random | 1"]["area"]
            best = max(r["candidates"], key=lambda k: np.mean(r["candidates"][k]["area"]))
            gap = np.mean(r["candidates"][best]["area"]) - np.mean(mine["area"])
            chosen = r["chosen"].replace(" | ", ", a = ")
            lines.append(
                f"- seed {r['seed']}: chosen {chosen} ({r['recommendation']}), M̃ "
                f"{mine['area'][0]:.2f} / {mine['area'][1]:.2f} against random replacement "
                f"{plain[0]:.2f} / {plain[1]:.2f}; full {mine['full'][0]:.1f} / "
                f"{mine['full'][1]:.1f} against new/new {r['new'][0]:.1f} / {r['new'][1]:.1f}; "
                f"new/new reached at {mine['reach'][0]:.0f} % / {mine['reach'][1]:.0f} %; "
                f"{gap:.2f} below the best with hindsight"
            )
    return "\n".join(lines)


def table(
    group: list[dict[str, Any]], rows: list[str], columns: list[str], heads: list[str],
    between: str = " | ",
) -> list[str]:  # fmt: skip
    """M̃ of both metrics, mean ± standard deviation over seeds."""
    lines = [" | ".join(["| order" if between else "| order, a", *heads]) + " |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for row in rows:
        cells = []
        for column in columns:
            key = f"{row}{between}{column}"
            values = np.array([r["candidates"][key]["area"] for r in group])
            mean, spread = values.mean(axis=0), values.std(axis=0)
            cells.append(f"{mean[0]:.2f} / {mean[1]:.2f} ± {spread[0]:.2f} / {spread[1]:.2f}")
        lines.append(f"| {row.replace(' | ', ', ')} | " + " | ".join(cells) + " |")
    return lines


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks backfill", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=FILES, default=list(FILES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument(
        "--untouched", action="store_true", help="measure on rows on which nothing was chosen"
    )
    parser.add_argument("--upgrades", type=Path, help="where fitted ones are kept between runs")
    args = parser.parse_args(arguments)
    results = []
    for seed in range(args.seeds):
        for name in args.only:
            given = args.pictures, args.upgrades, args.untouched
            results.append(measure(args.data, name, seed, *given))
            print(name, seed, results[-1]["chosen"], file=sys.stderr)
            if args.json:
                args.json.write_text(json.dumps(results))
    print(markdown(results))
