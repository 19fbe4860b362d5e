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

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from crossfade.losses.alignment import alignment
from crossfade.losses.contrastive import contrastive
from crossfade.losses.orthogonality import gram_deviation, regularizer
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.blocks import Loss, Run, epochs_for
from crossfade.solvers.closed_form import compose
from crossfade.solvers.device import seeded
from crossfade.solvers.problem import BackwardMap, ForwardMap, Problem, Solution
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
        hidden = s.hidden or HIDDEN
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
    return Solution(run.backward, run.forward, run.scores, run.closed, run.history, run.notes)
