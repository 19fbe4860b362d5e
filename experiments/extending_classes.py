"""Extending classes: Table 1a and Appendix A."""

from __future__ import annotations

import argparse

from experiments.compatibility import compare
from experiments.fits import Run
from experiments.outcome import Outcome

PAPER = "Table 1a, Appendix A"
TABLES = {
    "imagenet": "Table 1a (ImageNet-1K, 500 → 1000 classes, ResNet-34 128-d)",
    "places": "Appendix A (Places, 205 → 365 classes, ResNet-50)",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", choices=list(TABLES), default="imagenet")


def run(given: Run, args: argparse.Namespace) -> Outcome:
    return compare(
        given,
        "extending-classes" if args.against == "imagenet" else f"extending-classes-{args.against}",
        "Extending classes",
        TABLES[args.against],
        args.substitution,
    )
