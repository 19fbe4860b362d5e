"""Which loss contributes what: both tables of Appendix F."""

from __future__ import annotations

import argparse
from typing import Any

from experiments import published
from experiments.downstream import NEAR
from experiments.fits import Run
from experiments.outcome import Outcome

PAPER = "Appendix F, both tables"
TABLES = {
    "orthogonal": "Appendix F (ImageNet-1K, orthogonal B)",
    "near-orthogonal": "Appendix F (CUB-200, near-orthogonal B, λ = 12)",
}
ALL = ("✓", "✓", "✓")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backward", choices=list(TABLES), default="orthogonal")


def run(given: Run, args: argparse.Namespace) -> Outcome:
    table = published.LOSSES[TABLES[args.backward]]
    out = Outcome(
        f"losses-{args.backward}",
        f"Loss terms, {args.backward} B",
        TABLES[args.backward] + ", CMC-Top1",
        args.substitution,
        ("L_F", "L_B", "L_C"),
        published.LOSS_CASES,
    )
    out.facts = given.facts()
    base: dict[str, Any] = NEAR if args.backward == "near-orthogonal" else {}
    for used, paper in table.items():
        off = {w: 0.0 for w, on in zip(("w1", "w2", "w3"), used, strict=True) if not on}
        runs: dict[str, list[float]] = {case: [] for case in published.LOSS_CASES}
        for seed in given.seeds:
            means = given.table(given.fit("Ours", seed, **base, **off)).means()
            for case in runs:
                runs[case].append(means[case]["cmc@1"])
        out.add(tuple("✓" if on else "×" for on in used), paper, runs)
    _claims(out)
    return out


def _claims(out: Outcome) -> None:
    forward, backward, both = ("✓", "×", "×"), ("×", "✓", "×"), ("✓", "✓", "×")
    clustered, without_b, without_f = ("×", "×", "✓"), ("✓", "×", "✓"), ("×", "✓", "✓")
    out.claim(
        "L_F alone is not backward compatible: far below the full loss in F/old and B/old",
        [(ALL, forward)],
        ("F(old)/old", "B(new)/old"),
    )
    out.claim(
        "L_B alone aligns B(new) with old but leaves F untrained",
        [(ALL, backward)],
        ("F(old)/old", "B(new)/F(old)"),
    )
    out.claim("L_C brings F(old)/old: full above L_F + L_B", [(ALL, both)], ("F(old)/old",))
    out.claim("L_C brings B(new)/old: full above L_F + L_B", [(ALL, both)], ("B(new)/old",))
    out.claim(
        "L_F brings B(new)/F(old): full above L_B + L_C", [(ALL, without_f)], ("B(new)/F(old)",)
    )
    out.claim("L_B brings B(new)/old: full at least L_F + L_C", [(ALL, without_b)], ("B(new)/old",))
    out.claim(
        "the full loss is the best or near it in F/F and B/F: above L_C alone",
        [(ALL, clustered)],
        ("F(old)/F(old)", "B(new)/F(old)"),
    )
