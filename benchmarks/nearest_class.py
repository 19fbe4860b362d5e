"""Orders by class with the gallery's labels, and with the nearest of the plan's class means.

python -m benchmarks.nearest_class --data FOLDER --seeds 3

As in `benchmarks backfill`: fitted on the training split, planned on a random half of the test
split, measured on the other half, whose labels an order by nearness never sees.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.backfill import METRICS, fitted
from benchmarks.features import load
from crossfade import Held, Pairs
from crossfade.backfill.blend import Blend
from crossfade.backfill.items import Items
from crossfade.backfill.orders import ORDERS
from crossfade.backfill.simulate import simulate
from crossfade.backfill.volume import Quiet

ORDER = "small-margin"
CHOSEN = {
    "banking77-minilm": Blend(0.5, 0.2, 0.9),
    "extending-classes": Blend(1.2, 0.2, 0.8),
}
"""What plans choose on these files; each is also measured with replacement."""


def measure(folder: Path, name: str, seed: int, kept: Path | None) -> dict[str, list[float]]:
    """M̃ by metric of each way to order, and in percent how often the nearest mean is the class."""
    upgrade = fitted(folder, name, seed, kept)
    old, new, labels = load(folder, name, "test")
    mixed = np.random.default_rng(seed).permutation(len(labels))
    halves = [np.sort(mixed[: len(mixed) // 2]), np.sort(mixed[len(mixed) // 2 :])]
    here, there = (Held.of(Pairs.from_arrays(old[h], new[h], labels[h])) for h in halves)
    planned = simulate(upgrade, here, orders=[ORDER], blends=[1.0], seed=seed, asking=["new"])
    assert planned.groups is not None
    groups = planned.groups.by_nearness()
    items = Items(np.arange(there.gallery), there.gallery_old, upgrade.forward(there.gallery_old))
    codes = np.unique(labels, return_inverse=True)[1][halves[1]]
    quiet = Quiet.learn(upgrade.backward(here.query_new), seed)
    urgency = ORDERS[ORDER](items, groups)

    def area(order: str, how: Blend) -> list[float]:
        found = simulate(
            upgrade, there, orders=[order], blends=[how], seed=seed, quiet=quiet, priority=urgency
        )
        return [found.candidates[0].curve.area(metric) for metric in METRICS]

    out = {"nearest is the class": [100 * float(np.mean(groups.codes(items) == codes))]}
    out["random, 1"] = area("random", Blend(1, 1))
    for how in (Blend(1, 1), CHOSEN[name]):
        out[f"{ORDER} by labels, {how}"] = area(ORDER, how)
        out[f"{ORDER} by the nearest mean, {how}"] = area("priority", how)
    return out


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nearest_class", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(CHOSEN), default=list(CHOSEN))
    parser.add_argument("--upgrades", type=Path, help="where fitted ones are kept between runs")
    args = parser.parse_args(arguments)
    for name in args.only:
        found = [measure(args.data, name, seed, args.upgrades) for seed in range(args.seeds)]
        print(f"\n### {name}\n")
        for key in found[0]:
            values = np.array([one[key] for one in found])
            mean, spread = values.mean(axis=0), values.std(axis=0)
            cells = (f"{m:.2f} ± {s:.2f}" for m, s in zip(mean, spread, strict=True))
            print(f"- {key}: {' / '.join(cells)}")


if __name__ == "__main__":
    main(sys.argv[1:])
