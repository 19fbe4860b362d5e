"""The default solver: start at the closed form, refine with the full loss, keep what validates.

The total loss of Section 3.5 is minimized block by block. First B, with F tied to it as B∘R (R the
ridge map old → new), which is the closed-form F for every B; then F alone, with B at rest. For an
orthogonal B the tie leaves L_F and L_contr(F, B) constant, so its block costs one linear solve a
step and no pass through F. A fourth contrastive term, L_contr(B(new), old) with weight w4, asks
directly for what the first day of an upgrade needs: new queries that find old items of their class.

At several points of each block both maps are scored on the validation split. A state counts only if
B(new)/old is no worse there than the closed form's. The best such state is kept, which may be the
closed form itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from crossfade.losses.alignment import alignment
from crossfade.losses.contrastive import contrastive
from crossfade.losses.orthogonality import gram_deviation, regularizer
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.closed_form import as_kind, compose
from crossfade.solvers.device import pick_device, seeded
from crossfade.solvers.problem import BackwardMap, ForwardMap, Problem, Scores, Solution
from crossfade.solvers.settings import HIDDEN
from crossfade.solvers.trainable import (
    TrainableAffine,
    TrainableMlp,
    TrainableTurn,
    input_scale,
)

LR_BACKWARD = {"orthogonal": 5e-3, "near-orthogonal": 3e-3, "affine": 1e-3}
LR_FORWARD, WEIGHT_DECAY = 1e-3, 2.0
# What is validated of F is the running mean of its weights, over about 1 / (1 − 0.98) steps.
AVERAGE = 0.98
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


def epochs_for(rows: int, asked: int | None, batch_size: int, epochs: int, least: int) -> int:
    """Epochs: as told; else `epochs`, more on few rows (at least `least` steps), fewer on many."""
    if asked is not None:
        return asked
    needed = math.ceil(least * batch_size / rows)
    affordable = max(2, 1_000_000 // rows)
    return max(min(epochs, affordable), needed)


def _refine_backward(run: Run) -> None:
    s, kind = run.settings, run.settings.backward_map
    start = torch.from_numpy(run.problem.rotation.astype(np.float32)).to(run.device)
    module, loss, distance = (_turn if kind == "orthogonal" else _bend)(run, start)

    def state() -> tuple[BackwardMap, ForwardMap]:
        backward = module.frozen()
        return backward, compose(backward, *run.problem.ridge)

    rows = len(run.old)
    batch_size = s.batch_size or max(64, min(1024, rows // 4))
    # A rotation needs little; to settle at λ takes longer.
    epochs, least = (8, 32) if kind == "orthogonal" else (20, 200)
    lr = LR_BACKWARD[kind]
    if kind == "near-orthogonal":
        # A step of Adam moves all n² weights by lr, and ‖WWᵀ−I‖ by about n·lr: past a small λ.
        lr = min(lr, 1.2 / len(start))
    run.train(
        "backward",
        module,
        epochs=epochs_for(rows, s.epochs, batch_size, epochs, least),
        batch_size=batch_size,
        lr=s.lr or lr,
        weight_decay=0.0,
        loss=loss,
        state=state,
        distance=distance,
        # After a quarter of the steps ‖WWᵀ−I‖ is still on its way to λ.
        settling=1 if kind == "near-orthogonal" else 0,
    )


def _turn(run: Run, start: torch.Tensor) -> tuple[TrainableTurn, Loss, Callable[[], float]]:
    """The block of an orthogonal B: with F tied to it, only the terms of B and old change."""
    w2 = run.settings.w2
    module = TrainableTurn(start, rows=run.placed.shape[1]).to(run.device)
    mapped = run.new @ start.T

    def loss(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        labels = None if run.labels is None else run.labels[rows]
        placed, b = run.placed[rows], module(mapped[rows])
        terms = {"L_BC": run.w4 * contrastive(b, placed, run.temperature, labels)}
        if w2:
            terms["L_B"] = w2 * alignment(b, placed)
        return terms

    return module, loss, lambda: 0.0


def _bend(run: Run, start: torch.Tensor) -> tuple[TrainableAffine, Loss, Callable[[], float]]:
    """The block of a near-orthogonal or affine B: all terms, and the regularizer."""
    s = run.settings
    near = s.backward_map == "near-orthogonal"
    bias = torch.zeros(len(start), device=run.device)
    module = TrainableAffine(start, bias, near_orthogonal=near).to(run.device)
    penalty = regularizer(s.regularizer, s.lam, s.steepness) if near else None
    weight, shift = run.ridge

    def loss(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        labels = None if run.labels is None else run.labels[rows]
        placed, b = run.placed[rows], module(run.new[rows])
        f = module(run.old[rows] @ weight.T + shift)
        near_new = contrastive(f, b, run.temperature, labels)
        near_old = contrastive(f, placed, run.temperature, labels)
        terms = {
            "L_BC": run.w4 * contrastive(b, placed, run.temperature, labels),
            "L_C": s.w3 * (near_new + near_old),
            "L_F": run.w1 * alignment(f, b),
        }
        if s.w2:
            terms["L_B"] = s.w2 * alignment(b, placed)
        if penalty is not None:
            terms["L_λ"] = s.regularizer_weight * penalty(module.weight)
        return terms

    return module, loss, lambda: float(gram_deviation(module.weight))


def _refine_forward(run: Run) -> None:
    s = run.settings
    start = compose(run.backward, *run.problem.ridge)
    weight, bias = (torch.from_numpy(x).to(run.device) for x in (start.weight, start.bias))
    d, n = run.old.shape[1], run.new.shape[1]
    module: TrainableMlp | TrainableAffine
    if s.forward_kind == "mlp":
        hidden = tuple(s.hidden or HIDDEN)
        scale = input_scale(run.problem.train.old)
        module = TrainableMlp(d, n, hidden, (weight, bias), scale)
    else:
        module = TrainableAffine(weight, bias, near_orthogonal=False)
    module = module.to(run.device)
    ema = get_ema_multi_avg_fn(AVERAGE)  # type: ignore[no-untyped-call]
    average = AveragedModel(module, multi_avg_fn=ema)
    averaged = cast("TrainableMlp | TrainableAffine", average.module)
    backward = run.backward
    mapped = torch.from_numpy(backward(run.problem.train.new)).to(run.device)
    reached = deviation(backward.weight)

    def loss(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        labels = None if run.labels is None else run.labels[rows]
        f, b = module(run.old[rows]), mapped[rows]
        # Both ways: B(new) searches F(old), and F(old) B(new).
        near_new = contrastive(f, b, run.temperature, labels, both_ways=True)
        near_old = contrastive(f, run.placed[rows], run.temperature, labels)
        return {"L_F": run.w1 * alignment(f, b), "L_C": s.w3 * (near_new + near_old)}

    def state() -> tuple[BackwardMap, ForwardMap]:
        return backward, averaged.frozen()

    rows = len(run.old)
    batch_size = s.batch_size or max(64, min(512, rows // 4))
    run.train(
        "forward",
        module,
        epochs=epochs_for(rows, s.epochs, batch_size, epochs=20, least=360),
        batch_size=batch_size,
        lr=s.lr or LR_FORWARD,
        weight_decay=WEIGHT_DECAY if s.weight_decay is None else s.weight_decay,
        loss=loss,
        state=state,
        distance=lambda: reached,
        average=average,
        thrifty=run.labels is None and s.epochs is None,
    )


def solve(problem: Problem) -> Solution:
    """Refine the closed form of `problem`, block by block."""
    with seeded(problem.settings.seed):
        run = Run(problem)
        _refine_backward(run)
        if run.scores is run.closed:
            run.notes.append("refining B did not pay on validation: the closed form's B is kept")
        before = run.scores
        _refine_forward(run)
    if run.scores is before:
        run.notes.append("refining F did not pay on validation: the closed form's F is kept")
    return Solution(run.backward, run.forward, run.history, run.notes)
