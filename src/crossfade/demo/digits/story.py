"""The demo from images to numbers: two models, an upgrade, the cases before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.demo.digits.images import CLASSES, SEEN, Images, load_images
from crossfade.demo.digits.measure import guessing, measure
from crossfade.demo.digits.spaces import Spaces, map_spaces
from crossfade.errors import MissingExtra
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]
# Called with what is being done, how much of it is done, and how much there is.
Report = Callable[[str, int, int], None]

# Chosen on validation rows cut from the training images, over five seeds; never on the test images.
DIM, STEPS, LR = 64, 300, 1e-3
# Two dimensions are tight for ten digits: it takes longer to find one for each.
STEPS_2D, LR_2D = 600, 3e-3


@dataclass(frozen=True, eq=False)
class Embedded:
    """Images embedded by both models, with the digits they show."""

    old: Float
    new: Float
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Story:
    """What the demo made: the upgrade, the vectors behind it, its scores, and the 2-D spaces."""

    seed: int
    upgrade: Upgrade
    train: Embedded
    test: Embedded
    cases: dict[str, dict[str, float]]
    spaces: Spaces

    @property
    def guessing(self) -> float:
        """CMC-Top1 of answers at random, in percent."""
        return guessing(self.test.labels)

    def record(self) -> dict[str, Any]:
        """What `demo.json` holds."""
        return {
            "seed": self.seed,
            "rows": {"train": len(self.train.labels), "test": len(self.test.labels)},
            "guessing": self.guessing,
            "cases": self.cases,
            "spaces": {kind: mapped.record() for kind, mapped in self.spaces.mapped.items()},
            "notes": self.upgrade.notes_,
        }


def run_story(seed: int = 0, report: Report = lambda what, done, total: None) -> Story:
    """Train the models, learn the upgrade and measure it; the same seed gives the same story."""
    for module, package in (
        ("sklearn", "scikit-learn"),
        ("torch", "torch"),
        ("matplotlib", "matplotlib"),
    ):
        if find_spec(module) is None:
            raise MissingExtra(package, extra="digits", need="the demo on digits")
    images = load_images(seed)
    first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2, np.uint32))
    with _one_thread():
        train, test = _embed(images, DIM, STEPS, LR, (first, second), "", report)
        upgrade = Upgrade(
            seed=seed,
            device="cpu",
            old_model="digits 0–4",
            new_model="digits 0–9",
        ).fit(
            train.old,
            train.new,
            train.labels,
            report=lambda e: report(f"learning {_NAMES[e['block']]}", e["epoch"], e["epochs"]),
        )
        flat = _embed(images, 2, STEPS_2D, LR_2D, (first, second), " in 2-D", report)
    return Story(
        seed=seed,
        upgrade=upgrade,
        train=train,
        test=test,
        cases=measure(upgrade, test.old, test.new, test.labels),
        spaces=map_spaces(
            (flat[0].old, flat[0].new),
            (flat[1].old, flat[1].new),
            train.labels,
            test.labels,
            seed,
        ),
    )


_NAMES = {"closed_form": "the closed form", "backward": "B", "forward": "F"}


def _embed(
    images: tuple[Images, Images],
    dim: int,
    steps: int,
    lr: float,
    seeds: tuple[int, int],
    suffix: str,
    report: Report,
) -> tuple[Embedded, Embedded]:
    """Train the old model on some digits, the new one on all; embed all images with both."""
    from crossfade.demo.digits.network import train_network

    models = []
    for name, classes, seed in (("old", SEEN, seeds[0]), ("new", CLASSES, seeds[1])):
        what = f"training the {name} model{suffix}"
        models.append(
            train_network(
                images[0].below(classes),
                dim=dim,
                steps=steps,
                lr=lr,
                seed=seed,
                report=partial(report, what),
            )
        )
    old, new = models
    train, test = (Embedded(old(i.pixels), new(i.pixels), i.labels) for i in images)
    return train, test


@contextmanager
def _one_thread() -> Iterator[None]:
    # On matrices this small a second thread costs more than it brings, many times more where the
    # cores are busy; and one thread adds numbers up in one order.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
