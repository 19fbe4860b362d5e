"""Ablation on λ: the table and the figure of Appendix E."""

from __future__ import annotations

import argparse
import math
from typing import Any

from crossfade.retrieval import SameClass, measure
from experiments import published
from experiments.fits import Run
from experiments.outcome import Outcome
from experiments.published import STRICT

PAPER = "Appendix E, ablation on λ (table and figure)"
CASES = ("F(old)/F(old)", "B(new)/F(old)", "B(new)/B(new)")
COLUMNS = (*CASES, "ZS", "‖WᵀW−I‖")
STEEPNESS = 50.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lambdas", type=float, nargs="*", default=list(published.LAMBDA))


def named(lam: float) -> str:
    """
    >>> named(STRICT), named(0), named(math.inf)
    ('⊥', '0', '∞')
    """
    return "⊥" if lam == STRICT else "∞" if math.isinf(lam) else f"{lam:g}"


def maps(lam: float) -> dict[str, Any]:
    """How B is fitted at this λ."""
    if lam == STRICT:
        return {"backward_map": "orthogonal"}
    if lam == 0:
        # λ = 0 is soft orthogonality, as the paper says.
        return {"backward_map": "near-orthogonal", "regularizer": "so"}
    return {"backward_map": "near-orthogonal", "lam": float(lam), "alpha": STEEPNESS}


def measured(given: Run, method: str, **how: Any) -> dict[str, list[float]]:
    """The columns of the table, a number for each seed."""
    runs: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for seed in given.seeds:
        fit = given.fit(method, seed, **how)
        found = given.table(fit, zero_shot=True)
        for case, values in found.means().items():
            if case in CASES:
                runs[case].append(values["cmc@1"])
        runs["‖WᵀW−I‖"].append(fit.lambda_reached_)
        if found.zero_shot is not None:
            runs["ZS"].append(found.zero_shot.metrics["cmc@1"].change)
    return {name: values for name, values in runs.items() if values}


def run(given: Run, args: argparse.Namespace) -> Outcome:
    out = Outcome(
        f"lambda-{given.features.name}",
        "Ablation on λ",
        "Appendix E, table of λ (CUB-200, CMC-Top1)",
        args.substitution,
        ("λ",),
        COLUMNS,
    )
    out.facts = given.facts()
    for lam in args.lambdas:
        out.add((named(lam),), published.LAMBDA.get(lam), measured(given, "Ours", **maps(lam)))
    new = given.features.test.new
    plain = measure(new, new, SameClass.among(given.features.test.labels), ("cmc@1",))
    out.facts["new/new"] = round(plain.mean("cmc@1"), 2)
    out.series["kind"] = "lambda"
    if set(published.LAMBDA) <= set(args.lambdas):
        _claims(out)
    return out


def _claims(out: Outcome) -> None:
    mapped = ("B(new)/B(new)",)
    out.claim("B(new)/B(new) rises with λ: 12 above ⊥", [(("12",), ("⊥",))], mapped)
    out.claim("… and without regularization above λ = 12", [(("∞",), ("12",))], mapped)
    out.claim("λ = 0 brings nothing over ⊥", [(("0",), ("⊥",))], mapped, level=True)
    reached = out.row("12")
    low, high = min(reached.runs["‖WᵀW−I‖"]), max(reached.runs["‖WᵀW−I‖"])
    out.judge(
        "λ = 12 is met: ‖WᵀW−I‖ ends at 12 ± 0.6",
        "holds" if low >= 11.4 and high <= 12.6 else "does not hold",
        f"{low:.2f} to {high:.2f}",
        ("12",),
    )
    asked = "B(new)/F(old)"
    best = max(out.rows, key=lambda row: row.mean(asked))
    out.judge(
        "λ = 12 is the best compromise: highest B(new)/F(old)",
        "holds" if best.mean(asked) - reached.mean(asked) <= 0.3 else "does not hold",
        f"highest at λ = {best.name[0]}, {best.mean(asked):.2f} against {reached.mean(asked):.2f}",
        ("12",),
    )
    if "ZS" in reached.runs:
        out.judge(
            "zero-shot is kept up to λ = 12 (change of at least −0.3)",
            "holds" if reached.mean("ZS") >= -0.3 else "does not hold",
            f"{reached.mean('ZS'):+.2f}",
            ("12",),
        )
        out.claim("… and lost without regularization", [(("12",), ("∞",))], ("ZS",))
