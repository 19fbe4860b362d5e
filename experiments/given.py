"""The options every experiment on features has, and what they give."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossfade import BadInput
from experiments import features, images, substitutions
from experiments.fits import Run


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--features", type=Path, help="a safetensors file of features")
    images.add_options(parser)
    parser.add_argument("--old", help="a prefix in the features file, or a model (see extract)")
    parser.add_argument("--new", help="likewise")
    parser.add_argument("--side", help="prefix of FCT's side information (peers only)")
    parser.add_argument("--rows", type=int, help="train on a sample of this many rows")
    parser.add_argument("--test-rows", type=int, help="measure on a sample of this many rows")
    parser.add_argument("--epochs", type=int, help="of every trained method but Crossfade's own")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--cache", type=Path, help="keep fits and embeddings here")
    parser.add_argument("--substitution", help="a sentence for the page on what stands for what")


def given(args: argparse.Namespace) -> Run:
    """The features, read or extracted, and how to run on them."""
    if (args.features is None) == (args.images is None):
        raise BadInput("name --features FILE, or --images DIR with --old and --new")
    if args.images is not None:
        # Pillow is for those who have images.
        from experiments.images.extract import pair

        path = pair(args)
        old, new = "old", "new"
    else:
        path, old, new = args.features, args.old or "old", args.new or "new"
    found = features.read(path, old, new, side=args.side, rows=args.rows, test_rows=args.test_rows)
    if args.substitution is None:
        args.substitution = substitutions.said(found.name)
    return Run(found, args.seeds, args.device, args.cache, args.epochs, args.batch_size)
