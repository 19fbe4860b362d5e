"""Train the backbones of the extending-classes setting: ResNet-34, 128-d (Section 4.3).

python -m experiments train --images DIR --dataset imagenet --classes first-half -o old.safetensors
python -m experiments train --images DIR --dataset imagenet --classes all -o new.safetensors

PyTorch's reference recipe for classification: SGD at 0.1 with momentum 0.9, weight decay 0.0001, 90
epochs, a tenth of the rate after every 30, batches of 256, random crops and mirroring.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from safetensors.torch import save_file

from crossfade.solvers.device import pick_device, seeded
from experiments.images import datasets
from experiments.images.datasets import Images
from experiments.images.extract import READERS, batches
from experiments.images.preprocess import Preprocessing
from experiments.images.resnet import DIM, ResNet34


def train(images: Images, classes: int, args: argparse.Namespace) -> ResNet34:
    """The backbone after all epochs."""
    device = pick_device(args.device)
    seen = Preprocessing(args.resize, args.crop)
    rng = np.random.default_rng(args.seed)
    with seeded(args.seed), ThreadPoolExecutor(READERS) as pool:
        network = ResNet34(classes, args.dim).to(device)
        optimizer = torch.optim.SGD(
            network.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, max(1, args.epochs // 3), 0.1)
        labels = torch.from_numpy(images.labels).to(device)
        for epoch in range(1, args.epochs + 1):
            network.train()
            order, total = rng.permutation(len(images)), 0.0
            for first in range(0, len(order), args.batch_size):
                rows = order[first : first + args.batch_size]
                own = rng.spawn(len(rows))
                pictures = pool.map(lambda i, r: seen.random(images.open(i), r), rows.tolist(), own)
                logits = network.classifier(network(torch.stack(list(pictures)).to(device)))
                loss = functional.cross_entropy(logits, labels[torch.from_numpy(rows).to(device)])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            schedule.step()
            print(f"epoch {epoch} of {args.epochs}: loss {total / len(order):.3f}", file=sys.stderr)
    return network.eval()


def accuracy(network: ResNet34, images: Images, seen: Preprocessing, device: Any) -> float:
    """Share of pictures put in their class, in percent."""
    right = 0
    with torch.inference_mode():
        for first, batch in batches(images, seen):
            found = network.classifier(network(batch.to(device))).argmax(dim=1).cpu().numpy()
            right += int((found == images.labels[first : first + len(found)]).sum())
    return 100.0 * right / len(images)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--dataset", default="folders", choices=list(datasets.DATASETS))
    parser.add_argument("--classes", choices=("first-half", "all"), default="all")
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    images, held = (datasets.load(args.dataset, args.images, s) for s in ("train", "test"))
    classes = int(images.labels.max()) + 1
    if args.classes == "first-half":
        classes = math.ceil(classes / 2)
        images, held = images.only(classes), held.only(classes)
    network = train(images, classes, args)
    seen = Preprocessing(args.resize, args.crop)
    top = accuracy(network, held, seen, pick_device(args.device))
    about = {"classes": classes, "dim": args.dim, "resize": args.resize, "crop": args.crop}
    temporary = args.out.with_suffix(".part")
    state = {k: v.cpu().contiguous() for k, v in network.state_dict().items()}
    save_file(state, temporary, {"backbone": json.dumps(about | {"accuracy": top})})
    temporary.replace(args.out)
    print(f"{args.out}: {len(images):,} pictures of {classes} classes, accuracy {top:.1f} %")
