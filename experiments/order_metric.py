"""The distance that orders the backfill, MSE or cosine: Appendix G, tables and figure."""

from __future__ import annotations

import argparse

import numpy as np

from experiments import published
from experiments.backfilling import curve_of
from experiments.fits import METRICS, Run
from experiments.outcome import Outcome

PAPER = "Appendix G, tables and figure"
TABLES = {
    "extending-classes": "Appendix G (extending classes)",
    "pretrained": "Appendix G (independently pretrained)",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", choices=list(TABLES), default="extending-classes")


def run(given: Run, args: argparse.Namespace) -> Outcome:
    table = published.ORDER_METRIC[TABLES[args.against]]
    out = Outcome(
        f"order-metric-{args.against}",
        f"Distance metric of the order, {args.against.replace('-', ' ')}",
        TABLES[args.against] + ", M̃",
        args.substitution,
        ("distance",),
        METRICS,
    )
    out.facts = given.facts()
    held = given.features.held
    fits = [given.fit("Ours", seed) for seed in given.seeds]
    for name, order in (("MSE", "far-mse"), ("cosine", "far-cosine")):
        found = [curve_of(fit, held, order) for fit in fits]
        out.add((name,), table[name], {m: [c.area(m) for c in found] for m in METRICS})
        out.series[name] = {
            m: np.mean([c.means(m) for c in found], axis=0).round(3).tolist() for m in METRICS
        }
    out.series["kind"] = "curves"
    both = [(("cosine",), ("MSE",))]
    out.claim("cosine is slightly above MSE in mAP", both, ("mAP",))
    out.claim("CMC-Top1 is comparable", both, ("cmc@1",), level=True)
    return out
