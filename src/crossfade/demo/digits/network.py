"""A small embedding model: 64 pixels → hidden layer → embedding, trained through a classifier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossfade.demo.digits.images import Images
from crossfade.solvers.device import seeded

Embed = Callable[[NDArray[np.float32]], NDArray[np.float32]]
Steps = Callable[[int, int], None]

HIDDEN, BATCH_SIZE = 128, 128


def train_network(
    images: Images,
    *,
    dim: int,
    steps: int,
    lr: float,
    seed: int,
    report: Steps = lambda done, total: None,
) -> Embed:
    """An embedding model of `dim` dimensions that tells the digits of `images` apart.

    The classifier on top is thrown away, as it is in retrieval. `report` gets the steps done and
    their total.

    >>> pixels = np.eye(64, dtype=np.float32)
    >>> images = Images(pixels, np.arange(64, dtype=np.int64) % 2)
    >>> train_network(images, dim=3, steps=5, lr=0.01, seed=0)(pixels).shape
    (64, 3)
    """
    pixels, labels = torch.from_numpy(images.pixels), torch.from_numpy(images.labels)
    with seeded(seed):
        body = nn.Sequential(nn.Linear(pixels.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, dim))
        head = nn.Linear(dim, int(labels.max()) + 1)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=lr)
        for step in range(1, steps + 1):
            rows = torch.randint(len(pixels), (BATCH_SIZE,))
            loss = nn.functional.cross_entropy(head(body(pixels[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            report(step, steps)

    def embed(x: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            vectors: NDArray[np.float32] = body(torch.from_numpy(x)).numpy()
        return vectors

    return embed
