"""Two 2-D spaces of digits and three maps between them: Figure 3.

`--idx DIR` is a folder of MNIST or Fashion-MNIST. Without it, scikit-learn's digits take its place.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from crossfade import Upgrade
from crossfade.maps.near_orthogonal import deviation
from crossfade.retrieval import SameClass, measure
from crossfade.solvers.device import pick_device, seeded
from experiments import idx
from experiments.outcome import Outcome

PAPER = "Figure 3"
KINDS: dict[str, dict[str, Any]] = {
    "affine": {"backward_map": "affine"},
    "orthogonal": {"backward_map": "orthogonal"},
    "λ = 1": {"backward_map": "near-orthogonal", "lam": 1.0},
}
SHOWN = 1500


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--idx", type=Path, help="folder of MNIST's files")
    parser.add_argument("--network-epochs", type=int, default=20)


class LeNet(nn.Module):
    """Two convolutions, two layers, an embedding of two dimensions, a classifier on it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 2)),
        )
        self.classifier = nn.Linear(2, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.body(x))


def train(
    images: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int, device: torch.device
) -> LeNet:
    """Cross-entropy, Adam at 0.001, batches of 128."""
    with seeded(seed):
        network = LeNet(int(labels.max()) + 1).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        for _ in range(epochs):
            order = torch.randperm(len(labels)).to(device)
            for first in range(0, len(order), 128):
                rows = order[first : first + 128]
                optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(network(images[rows]), labels[rows]).backward()
                optimizer.step()
    return network.eval()


def embed(network: LeNet, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        parts = [network.body(images[i : i + 1000]) for i in range(0, len(images), 1000)]
    return torch.cat(parts).cpu().numpy()


def data(args: argparse.Namespace) -> tuple[str, list[tuple[Any, Any]]]:
    """A name, and images with labels for training and test."""
    if args.idx is not None:
        return args.idx.name, [idx.folder(args.idx, split) for split in ("train", "t10k")]
    images, labels = idx.digits()
    test = np.random.default_rng(0).permutation(len(labels)) < len(labels) // 3
    return "scikit-learn's digits", [(images[~test], labels[~test]), (images[test], labels[test])]


def run(args: argparse.Namespace) -> Outcome:
    name, splits = data(args)
    device = pick_device(args.device)
    tensors = [
        (torch.from_numpy(x[:, None] / np.float32(255)).to(device), torch.from_numpy(y).to(device))
        for x, y in splits
    ]
    out = Outcome(
        "mnist",
        "Three maps between two spaces of digits",
        PAPER,
        "Run on MNIST's own files." if args.idx else "scikit-learn's digits in place of MNIST.",
        ("B",),
        ("L_B on classes 0–4", "B(new)/B(new) cmc@1", "‖WWᵀ−I‖", "σ₂/σ₁ of W"),
    )
    out.facts = {"data": name, "training rows": len(tensors[0][1]), "seeds": len(args.seeds)}
    runs: dict[str, dict[str, list[float]]] = {
        kind: {m: [] for m in out.metrics} for kind in ("none", *KINDS)
    }
    for seed in args.seeds:
        (images, labels), (test, test_labels) = tensors
        few = labels < 5
        source = train(images, labels, args.network_epochs, seed, device)
        target = train(images[few], labels[few], args.network_epochs, seed + 1000, device)
        new, old = embed(source, images), embed(target, images)
        held_new, held_old = embed(source, test), embed(target, test)
        # Spaces of unit size, so that λ = 1 weighs the same against L_B in every run.
        scales = [np.linalg.norm(x, axis=1).mean() for x in (new, old)]
        new, held_new, old, held_old = (
            new / scales[0],
            held_new / scales[0],
            old / scales[1],
            held_old / scales[1],
        )
        known, codes = (test_labels < 5).cpu().numpy(), test_labels.cpu().numpy()
        spaces = {"source": held_new, "target": held_old}
        for kind in runs:
            if kind == "none":
                mapped, weight = held_new, np.eye(2)
            else:
                chosen = few.cpu().numpy()
                # The old network knows these five classes alone, and knows them better.
                fit = Upgrade(
                    solver="paper",
                    forward_map="affine",
                    normalize_old="none",
                    normalize_new="none",
                    w1=0.0,
                    w2=1.0,
                    w3=0.0,
                    epochs=200,
                    batch_size=256,
                    seed=seed,
                    device=args.device,
                    **KINDS[kind],
                ).fit(old[chosen], new[chosen], labels[few].cpu().numpy(), force=True)
                mapped, weight = fit.backward(held_new), fit.backward_.map.weight
                spaces[kind] = mapped
            gap = ((mapped[known] - held_old[known]) ** 2).sum(axis=1).mean()
            top = measure(mapped, mapped, SameClass.among(codes), ("cmc@1",), distance="euclidean")
            singular = np.linalg.svd(weight, compute_uv=False)
            values = (gap, top.mean("cmc@1"), deviation(weight), singular[1] / singular[0])
            for metric, value in zip(out.metrics, values, strict=True):
                runs[kind][metric].append(float(value))
        if seed == 0:
            out.series = {"kind": "spaces", "labels": codes[:SHOWN].tolist()}
            out.series["spaces"] = {k: v[:SHOWN].round(3).tolist() for k, v in spaces.items()}
    for kind, found in runs.items():
        out.add((kind,), None, found)
    claims(out)
    return out


def claims(out: Outcome) -> None:
    """Those of Figure 3's caption and Section 3.3."""
    _claim(out, "λ-orthogonality aligns better than a strictly orthogonal map", 0, "orthogonal", -1)
    _claim(out, "… and keeps more of the source space than an affine one: σ₂/σ₁", 3, "affine", 1)


def _claim(out: Outcome, text: str, column: int, other: str, sign: int) -> None:
    """That λ = 1 is above (or below) the other map by more than the spread over seeds."""
    metric = out.metrics[column]
    ours, theirs = out.row("λ = 1"), out.row(other)
    gaps = sign * (np.array(ours.runs[metric]) - np.array(theirs.runs[metric]))
    sure = gaps.mean() > gaps.std()
    word = "holds" if sure else "level" if gaps.mean() > 0 else "does not hold"
    said = f"{ours.mean(metric):.3f} against {theirs.mean(metric):.3f}, ± {gaps.std():.3f}"
    out.judge(text, word, said, ours.name)
