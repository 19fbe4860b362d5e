"""From images to features: datasets as they lie on disk, models by name, extraction, training."""

from __future__ import annotations

import argparse
from pathlib import Path

DATASETS = ("folders", "imagenet", "cifar100", "cub200", "places365", "flowers102")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of images, for `extract` and for `run`."""
    parser.add_argument("--images", type=Path, help="a folder of images, embedded by both models")
    parser.add_argument("--dataset", default="folders", choices=DATASETS)
    parser.add_argument("--size", type=int, help="side of the input, where not the model's own")
    parser.add_argument("--zero-shot", type=Path, help="a second folder, for the zero-shot column")
    parser.add_argument("--zero-shot-dataset", default="folders", choices=DATASETS)
