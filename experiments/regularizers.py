"""SO, SRIP and λ at four weights: the comparison of regularizers in Appendix E."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from experiments import published
from experiments.fits import Run
from experiments.lambda_ablation import COLUMNS, STEEPNESS, measured
from experiments.outcome import NOISE, Outcome

PAPER = "Appendix E, comparison of regularizers"
OURS = "λ = 12"
WEIGHTS = (1.0, 0.1, 0.01, 0.001)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", type=float, nargs="*", default=list(WEIGHTS))


def how(weight: float, regularizer: str) -> tuple[str, dict[str, Any]]:
    """The method and its options."""
    if regularizer != OURS:
        return regularizer, {"weight": weight}
    near = {"backward_map": "near-orthogonal", "lam": 12.0, "alpha": STEEPNESS}
    # A weight of 1 is the default: left out, the fit is the one of the other experiments.
    return "Ours", near | ({} if weight == 1 else {"regularizer_weight": weight})


def run(given: Run, args: argparse.Namespace) -> Outcome:
    out = Outcome(
        f"regularizers-{given.features.name}",
        "Regularizers at several weights",
        "Appendix E, table of regularizers (CUB-200, CMC-Top1)",
        args.substitution,
        ("w", "Method"),
        COLUMNS,
    )
    out.facts = given.facts()
    for weight in args.weights:
        for name in ("SO", "SRIP", OURS):
            method, options = how(weight, name)
            paper = published.REGULARIZERS.get((weight, name))
            out.add((f"{weight:g}", name), paper, measured(given, method, **options))
    if set(WEIGHTS) <= set(args.weights):
        _claims(out)
    return out


def _claims(out: Outcome) -> None:
    distance = "‖WᵀW−I‖"
    for weight in ("1", "0.1"):
        values = out.row(weight, OURS).runs[distance]
        out.judge(
            f"λ = 12, w = {weight}: ‖WᵀW−I‖ of 12 ± 0.6",
            "holds" if min(values) >= 11.4 and max(values) <= 12.6 else "does not hold",
            f"{min(values):.2f} to {max(values):.2f}",
            (weight, OURS),
        )
    one, tenth = out.row("1", OURS), out.row("0.1", OURS)
    gaps = {m: abs(one.mean(m) - tenth.mean(m)) for m in COLUMNS[:3]}
    noise = {m: max(NOISE, 2 * one.spread(m), 2 * tenth.spread(m)) for m in gaps}
    out.judge(
        "λ = 12 gives the same at w = 1 and w = 0.1, within noise",
        "holds" if all(gaps[m] <= noise[m] for m in gaps) else "does not hold",
        ", ".join(f"{m} {one.mean(m):.2f} and {tenth.mean(m):.2f}" for m in gaps),
        ("0.1", OURS),
    )
    for name in ("SO", "SRIP"):
        values = [out.row(f"{w:g}", name).mean(distance) for w in WEIGHTS]
        out.judge(
            f"{name}: ‖WᵀW−I‖ is what the weight makes it, from near 0 at w = 1 upwards",
            "holds" if values[0] < 1 and bool(np.all(np.diff(values) > 0)) else "does not hold",
            ", ".join(f"{v:.2f} at w = {w:g}" for v, w in zip(values, WEIGHTS, strict=True)),
            ("1", name),
        )
    small = [out.row("0.001", name).mean(distance) for name in ("SO", "SRIP", OURS)]
    out.judge(
        "at w = 0.001 all three are as good as unregularized: far above 12",
        "holds" if min(small) > 13 else "does not hold",
        ", ".join(f"{v:.2f}" for v in small),
        ("0.001", OURS),
    )
