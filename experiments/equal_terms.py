"""FCT, FastFill and ours on equal terms: same F, same budget, each tuned on validation alone.

Every method has the mlp of two hidden layers of 768, from a random start, Adam at 0.001, and the
same epochs and batches. Each may choose among four settings of its own, by the mean of CMC-Top1 and
mAP of B(new)/F(old) and F(old)/F(old) on the validation split (cut from the training rows, averaged
over seeds). The test split is looked at once, with what was chosen.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from experiments.compatibility import CASES
from experiments.fits import METRICS, Run, gathered
from experiments.outcome import Outcome
from experiments.published import FASTFILL, FCT, INDEPENDENT, OURS

PAPER = "the ordering of methods in Tables 1a, 1b, 2"
SELECT = ("B(new)/F(old)", "F(old)/F(old)")
GRID: dict[str, list[dict[str, Any]]] = {
    FCT: [{"weight_decay": w} for w in (0.0, 1e-6, 1e-5, 1e-4)],
    FASTFILL: [{"disc_weight": w} for w in (0.03, 0.1, 0.3, 1.0)],
    OURS: [{"temperature": t, "w3": w} for t in (0.05, 0.1) for w in (0.3, 1.0)],
}


def options(parser: argparse.ArgumentParser) -> None:
    del parser


def run(given: Run, args: argparse.Namespace) -> Outcome:
    out = Outcome(
        f"equal-terms-{given.features.name}",
        "FCT, FastFill and ours on equal terms",
        PAPER,
        args.substitution,
        ("Method", "Query/Gallery"),
        METRICS,
    )
    out.facts = given.facts()
    found = {}
    for method, grid in GRID.items():
        scored = []
        for options in grid:
            fits = [given.fit(method, seed, **options) for seed in given.seeds]
            score = [fit.validation_[c][m] for fit in fits for c in SELECT for m in METRICS]
            scored.append((float(np.mean(score)), options, fits))
        _, options, fits = max(scored, key=lambda one: one[0])
        out.facts[f"{method} chose"] = ", ".join(f"{k} = {v:g}" for k, v in options.items())
        out.facts.setdefault("validation", {})[method] = [round(s, 2) for s, _, _ in scored]
        found[method] = [given.table(fit).means() for fit in fits]
    for case in ("old/old", "new/new"):
        out.add((INDEPENDENT, case), None, gathered(found[OURS], case))
    for method in GRID:
        shown = CASES if method == OURS else CASES[:3]
        for case in shown:
            out.add((method, case), None, gathered(found[method], case))
    for case in ("F(old)/F(old)", "B(new)/F(old)"):
        out.claim(f"{case}: FastFill above FCT", [((FASTFILL, case), (FCT, case))])
        out.claim(f"{case}: ours above FCT", [((OURS, case), (FCT, case))])
        out.claim(f"{case}: ours above FastFill", [((OURS, case), (FASTFILL, case))])
    return out
