"""What both blocks of the fast solver share: the data, the best maps so far, the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.closed_form import as_kind, compose
from crossfade.solvers.device import pick_device
from crossfade.solvers.problem import BackwardMap, ForwardMap, Problem, Scores

CHECKS = {"backward": 4, "forward": 10}
# How far above λ a kept B may be; the slack is for λ = 0, which no float32 matrix meets.
OVERSHOOT, SLACK = 1.1, 0.05
W1, W4, TEMPERATURE = 5.0, 1.0, 0.07
# Without labels, validation is agreement with the new model, and most of the time goes into an F
# that gains little: it is trained while each look at it finds so many points more.
WORTH = 0.5
Loss = Callable[[torch.Tensor], dict[str, torch.Tensor]]


class Run:
    """The state shared by both blocks: data on the device, the best maps so far, the history."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.settings = problem.settings
        s = problem.settings
        self.w1 = W1 if s.w1 is None else s.w1
        self.w4 = W4 if s.w4 is None else s.w4
        self.temperature = s.temperature or TEMPERATURE
        self.device = pick_device(problem.settings.device)
        train = problem.train

        def move(x: np.ndarray[Any, Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

        self.old, self.new, self.placed = move(train.old), move(train.new), move(train.placed)
        self.labels = None if train.labels is None else move(train.labels)
        self.ridge = tuple(move(x.astype(np.float32)) for x in problem.ridge)
        self.backward: BackwardMap = as_kind(problem.rotation, problem.settings.backward_map)
        self.forward: ForwardMap = compose(self.backward, *problem.ridge)
        self.closed: Scores = problem.selection.scores(self.backward, self.forward)
        self.scores = self.closed
        self.history: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.record("closed_form", 0, 0, {}, 0.0, self.closed, kept=True)

    def record(
        self,
        block: str,
        epoch: int,
        epochs: int,
        losses: dict[str, float],
        distance: float,
        scores: Scores | None,
        *,
        kept: bool,
    ) -> None:
        entry: dict[str, Any] = {"block": block, "epoch": epoch, "epochs": epochs, "kept": kept}
        entry |= {"losses": losses, "deviation": distance}
        if scores is not None:
            entry["validation"] = scores
            entry["validation_mean"] = self.problem.selection.mean(scores)
        self.history.append(entry)
        self.problem.report(entry)

    def consider(self, backward: BackwardMap, forward: ForwardMap) -> tuple[Scores, bool]:
        """Score a state and keep it if it is allowed and the best so far."""
        selection = self.problem.selection
        scores = selection.scores(backward, forward)
        better = selection.mean(scores) > selection.mean(self.scores)
        kept = better and selection.guarded(scores, self.closed) and self.within_lambda(backward)
        if kept:
            self.backward, self.forward, self.scores = backward, forward, scores
        return scores, kept

    def within_lambda(self, backward: BackwardMap) -> bool:
        """Whether B keeps to λ; on its way there a step may overshoot."""
        s = self.settings
        if s.backward_map != "near-orthogonal" or s.regularizer in ("so", "srip"):
            return True
        return deviation(backward.weight) <= OVERSHOOT * s.lam + SLACK

    def train(
        self,
        block: str,
        module: torch.nn.Module,
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        weight_decay: float,
        loss: Loss,
        state: Callable[[], tuple[BackwardMap, ForwardMap]],
        distance: Callable[[], float],
        average: AveragedModel | None = None,
        settling: int = 0,
        thrifty: bool = False,
    ) -> None:
        """AdamW with a short warm-up and a cosine decay; validation at points on the way.

        The first `settling` of these points are passed over. `thrifty` training ends where a point
        is not `WORTH` more than the one before.
        """
        rows = len(self.old)
        steps = math.ceil(rows / batch_size)
        total = epochs * steps
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=lr, weight_decay=weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda t: (
                min(1.0, 20 * (t + 1) / total)
                * (0.01 + 0.495 * (1 + math.cos(math.pi * t / total)))
            ),
        )
        turns = range(1 + settling, CHECKS[block] + 1)
        checks = {math.ceil(epochs * i / CHECKS[block]) for i in turns}
        mean = self.problem.selection.mean
        last = mean(self.scores)
        for epoch in range(1, epochs + 1):
            sums: dict[str, float] = {}
            order = torch.randperm(rows).to(self.device)
            for first in range(0, steps * batch_size, batch_size):
                terms = loss(order[first : first + batch_size])
                optimizer.zero_grad(set_to_none=True)
                torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                if average is not None:
                    average.update_parameters(module)
                for name, value in terms.items():
                    sums[name] = sums.get(name, 0.0) + float(value.detach())
            losses = {name: value / steps for name, value in sums.items()}
            scores, kept = None, False
            with torch.no_grad():
                reached = distance()
                if epoch in checks:
                    scores, kept = self.consider(*state())
            self.record(block, epoch, epochs, losses, reached, scores, kept=kept)
            if scores is not None:
                gain, last = mean(scores) - last, mean(scores)
                if thrifty and gain < WORTH and epoch < epochs:
                    self.notes.append(
                        f"training of the {block} map ended after {epoch} of {epochs} epochs: it "
                        "no longer paid on validation"
                    )
                    return


def epochs_for(rows: int, told: int | None, batch_size: int, epochs: int, least: int) -> int:
    """Epochs: as told; else `epochs`, more on few rows (at least `least` steps), fewer on many."""
    if told is not None:
        return told
    needed = math.ceil(least * batch_size / rows)
    affordable = max(2, 1_000_000 // rows)
    return max(min(epochs, affordable), needed)
