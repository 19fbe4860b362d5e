"""Independently pretrained models: Table 1b, Appendices B and C."""

from __future__ import annotations

import argparse

from experiments.compatibility import compare
from experiments.fits import Run
from experiments.outcome import Outcome

PAPER = "Table 1b, Appendices B and C"
TABLES = {
    "vit": "Table 1b (ImageNet-1K, ResNet-18 → ViT-L-16)",
    "efficientnet": "Appendix B (ImageNet-1K, DenseNet-121 → EfficientNet-B3)",
    "dinov2": "Appendix C (ImageNet-1K, ResNet-18 → DINOv2 ViT-S-14)",
    "clip": "Appendix C (ImageNet-1K, ResNet-18 → CLIP CC12M)",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", choices=list(TABLES), default="vit")


def run(given: Run, args: argparse.Namespace) -> Outcome:
    return compare(
        given,
        "pretrained" if args.against == "vit" else f"pretrained-{args.against}",
        "Independently pretrained models",
        TABLES[args.against],
        args.substitution,
    )
