"""Every baseline of the package and both of ours in one table."""

from __future__ import annotations

import argparse
from typing import Any

from experiments.compatibility import CASES, CROSSFADE
from experiments.fits import METRICS, Run, gathered
from experiments.outcome import Outcome
from experiments.published import FASTFILL, FCT, INDEPENDENT, OURS

PAPER = "Section 2, the methods it names"
ROWS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Procrustes", "Procrustes", {}),
    ("ridge", "Ridge", {}),
    ("Drift-Adapter, Procrustes + scaling", "DriftAdapter", {"kind": "procrustes"}),
    ("Drift-Adapter, low-rank", "DriftAdapter", {"kind": "low-rank"}),
    ("Drift-Adapter, residual mlp", "DriftAdapter", {"kind": "mlp"}),
    (FCT, "FCT", {}),
    (FASTFILL, "FastFill", {}),
    (OURS, "Ours", {}),
    (CROSSFADE, "Crossfade", {}),
)


def options(parser: argparse.ArgumentParser) -> None:
    del parser


def run(given: Run, args: argparse.Namespace) -> Outcome:
    out = Outcome(
        f"peers-{given.features.name}",
        "Every baseline in one table",
        PAPER,
        args.substitution,
        ("Method", "Query/Gallery"),
        METRICS,
    )
    out.facts = given.facts()
    found = {
        name: [given.table(given.fit(method, s, **how)).means() for s in given.seeds]
        for name, method, how in ROWS
    }
    for case in ("old/old", "new/old", "new/new"):
        out.add((INDEPENDENT, case), None, gathered(found[OURS], case))
    for name, runs in found.items():
        for case in CASES:
            out.add((name, case), None, gathered(runs, case))
    if given.features.side is not None:
        _side(given, out)
    return out


def _side(given: Run, out: Outcome) -> None:
    """FCT again, with side information: another model's vectors kept with each item."""
    from dataclasses import replace

    from crossfade.baselines import FCT as Fct
    from experiments.features import Split

    features = given.features
    assert features.side is not None
    joined = [
        Split(Fct.join(split.old, side), split.new, split.labels)
        for split, side in zip((features.train, features.test), features.side, strict=True)
    ]
    with_side = replace(features, train=joined[0], test=joined[1], side=None)
    run = replace(given, features=with_side)
    width = features.side[0].shape[1]
    fits = [run.fit("FCT", seed, side_dim=width) for seed in run.seeds]
    runs = [run.table(fit).means() for fit in fits]
    name = f"{FCT} + side information"
    for case in ("old/old", *CASES[:3]):
        out.add((name, case), None, gathered(runs, case))
    out.claim(
        "FCT: side information helps F(old)/F(old) and new/F(old)",
        [((name, case), (FCT, case)) for case in ("F(old)/F(old)", "B(new)/F(old)")],
    )
