"""Embed the pictures of a dataset with two models, and write a features file.

python -m experiments extract --images DIR --dataset cub200 \\
    --old torchvision:resnet18 --new torchvision:vit_l_16 -o cub200.safetensors

Each model's vectors of each split are kept in --cache, so that a second pair of models, or a run
that was broken off, does not start again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from crossfade import BadInput
from crossfade.solvers.device import pick_device
from experiments.images import add_options, datasets, models
from experiments.images.datasets import Images

BATCH = 64
# Decoding pictures waits for the disk as often as for the processor.
READERS = 4


def batches(
    images: Images, preprocessing: Any, size: int = BATCH
) -> Iterator[tuple[int, torch.Tensor]]:
    """Preprocessed pictures, the next batch being read while one is in use."""

    def one(i: int) -> torch.Tensor:
        return preprocessing(images.open(i))

    def read(first: int) -> list[Any]:
        return [pool.submit(one, i) for i in range(first, min(first + size, len(images)))]

    with ThreadPoolExecutor(READERS) as pool:
        ahead = read(0)
        for first in range(0, len(images), size):
            current, ahead = ahead, read(first + size)
            yield first, torch.stack([task.result() for task in current])


def embed(
    model: models.Model, images: Images, device: torch.device, said: str
) -> NDArray[np.float16]:
    """The model's vectors of all pictures, as it gives them."""
    model.module.to(device)
    parts, begin = [], time.perf_counter()
    with torch.inference_mode():
        for first, batch in batches(images, model.preprocessing):
            parts.append(model.embed(batch.to(device)).float().cpu().numpy())
            done = first + len(batch)
            rate = done / max(time.perf_counter() - begin, 1e-9)
            print(f"\r{said}: {done:,} of {len(images):,}, {rate:.0f}/s", end="", file=sys.stderr)
    print(file=sys.stderr)
    found = np.concatenate(parts)
    if not np.isfinite(found).all():
        raise BadInput(f"{model.name} gave vectors that are not finite", where=said)
    # Half precision is what vectors are kept in; one beyond its range stays as it is.
    return found.astype(np.float16) if np.abs(found).max() < 6e4 else found


def cached(spec: str, images: Images, where: tuple[Any, ...], args: argparse.Namespace) -> Any:
    """`embed`, or what an earlier run has written."""
    names = [s.as_posix() if isinstance(s, Path) else str(i) for i, s in enumerate(images.sources)]
    told = [spec, models.stamp(spec), str(args.size), *map(str, where), *names]
    key = hashlib.sha256("\n".join(told).encode())
    place = args.cache and args.cache / f"vectors-{key.hexdigest()[:16]}.npy"
    if place and place.is_file():
        return np.load(place, allow_pickle=False)
    said = f"{spec} on {where[-1]}"
    found = embed(models.load(spec, size=args.size), images, pick_device(args.device), said)
    if place:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_suffix(".part.npy")
        np.save(temporary, found)
        temporary.replace(place)
    return found


def extract(args: argparse.Namespace, target: Path) -> Path:
    """Write the features file."""
    for name in ("old", "new"):
        if not getattr(args, name):
            raise BadInput(f"--{name} names no model", step="e.g. --old torchvision:resnet18")
    tensors: dict[str, Any] = {}
    for split in ("train", "test"):
        images = datasets.load(args.dataset, args.images, split)
        tensors[f"labels_{split}"] = images.labels.astype(np.int32)
        for side in ("old", "new"):
            where = (args.dataset, args.images.resolve(), split)
            tensors[f"{side}_{split}"] = cached(getattr(args, side), images, where, args)
    if getattr(args, "zero_shot", None):
        images = datasets.load(args.zero_shot_dataset, args.zero_shot, "test")
        tensors["labels_zeroshot"] = images.labels.astype(np.int32)
        where = (args.zero_shot_dataset, args.zero_shot.resolve(), "test")
        tensors["new_zeroshot"] = cached(args.new, images, where, args)
    classifier = models.load(args.new, size=args.size).classifier
    # A pretrained model's classes are those of its own training, which a downstream task's are not.
    if classifier is not None and len(classifier[0]) == len(np.unique(tensors["labels_train"])):
        tensors["new_classifier_weight"], tensors["new_classifier_bias"] = classifier
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".part")
    about = {"old": args.old, "new": args.new, "setting": f"{args.dataset}, {args.images.name}"}
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, temporary, about)
    temporary.replace(target)
    return target


def pair(args: argparse.Namespace) -> Path:
    """The features file of `experiments run --images`, in the cache or in the results folder."""
    asked = (args.old or "", args.new or "")
    told = [*asked, *map(models.stamp, asked), args.dataset, str(args.size), str(args.zero_shot)]
    key = hashlib.sha256("\n".join([*told, str(args.images.resolve())]).encode()).hexdigest()[:12]
    target = (args.cache or args.out) / f"{args.dataset}-{key}.safetensors"
    return target if target.is_file() else extract(args, target)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments extract",
        description=f"{__doc__}\n\nModels:\n{models.__doc__}\n\nDatasets:\n{datasets.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.add_argument("--old", help="a model")
    parser.add_argument("--new", help="a model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    if args.images is None:
        raise BadInput("--images names no folder")
    print(extract(args, args.out))
