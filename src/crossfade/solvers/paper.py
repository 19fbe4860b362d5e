"""The paper's recipe, for reproduction: random start, Adam at 0.001, exp(P) at every step.

B and F are trained together on w1·L_F + w2·L_B + w3·L_C + L_λ for a fixed number of epochs, and the
last state is taken as it is. The paper names the optimizer and the learning rate; it leaves epochs,
batch size, temperature and weights open. Here: 30 epochs, batches of 1000, 0.05, and 10, 10, 1.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from crossfade.losses.alignment import alignment
from crossfade.losses.contrastive import contrastive
from crossfade.losses.orthogonality import gram_deviation, regularizer
from crossfade.solvers.device import pick_device, seeded
from crossfade.solvers.problem import Problem, Solution
from crossfade.solvers.settings import HIDDEN
from crossfade.solvers.trainable import TrainableAffine, TrainableMlp, TrainableRotation

EPOCHS, BATCH_SIZE, LR = 30, 1000, 1e-3
W1, W2, TEMPERATURE = 10.0, 10.0, 0.05


def _maps(
    problem: Problem, d: int, n: int
) -> tuple[TrainableRotation | TrainableAffine, TrainableMlp | TrainableAffine]:
    s = problem.settings
    backward: TrainableRotation | TrainableAffine
    if s.backward_map == "orthogonal":
        upper = torch.randn(n, n) / math.sqrt(n)
        backward = TrainableRotation(upper)
    else:
        linear = nn.Linear(n, n)
        near = s.backward_map == "near-orthogonal"
        backward = TrainableAffine(
            linear.weight.detach(), linear.bias.detach(), near_orthogonal=near
        )
    if s.forward_kind == "mlp":
        return backward, TrainableMlp(d, n, tuple(s.hidden or HIDDEN), None, scale=1.0)
    linear = nn.Linear(d, n)
    forward = TrainableAffine(linear.weight.detach(), linear.bias.detach(), near_orthogonal=False)
    return backward, forward


def solve(problem: Problem) -> Solution:
    """Train both maps from a random start."""
    s, train = problem.settings, problem.train
    device = pick_device(s.device)
    old, new, placed = (
        torch.from_numpy(x).to(device) for x in (train.old, train.new, train.placed)
    )
    labels = None if train.labels is None else torch.from_numpy(train.labels).to(device)
    penalty = (
        regularizer(s.regularizer, s.lam, s.steepness)
        if s.backward_map == "near-orthogonal"
        else None
    )
    epochs, batch_size = s.epochs or EPOCHS, min(s.batch_size or BATCH_SIZE, len(old))
    w1 = W1 if s.w1 is None else s.w1
    w2 = W2 if s.w2 is None else s.w2
    temperature = s.temperature or TEMPERATURE
    history = []
    with seeded(s.seed):
        backward, forward = _maps(problem, old.shape[1], new.shape[1])
        backward, forward = backward.to(device), forward.to(device)
        parameters = [*backward.parameters(), *forward.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=s.lr or LR, weight_decay=s.weight_decay or 0.0)
        for epoch in range(1, epochs + 1):
            sums: dict[str, float] = {}
            steps = math.ceil(len(old) / batch_size)
            order = torch.randperm(len(old)).to(device)
            for first in range(0, len(old), batch_size):
                rows = order[first : first + batch_size]
                y = None if labels is None else labels[rows]
                matrix = backward.matrix()
                b, f = backward.apply_with(matrix, new[rows]), forward(old[rows])
                near_new = contrastive(f, b, temperature, y)
                near_old = contrastive(f, placed[rows], temperature, y)
                terms = {
                    "L_F": w1 * alignment(f, b),
                    "L_B": w2 * alignment(b, placed[rows]),
                    "L_C": s.w3 * (near_new + near_old),
                }
                if s.w4:
                    terms["L_BC"] = s.w4 * contrastive(b, placed[rows], temperature, y)
                if penalty is not None:
                    terms["L_λ"] = s.regularizer_weight * penalty(matrix)
                optimizer.zero_grad(set_to_none=True)
                torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                for name, value in terms.items():
                    sums[name] = sums.get(name, 0.0) + float(value.detach())
            with torch.no_grad():
                distance = float(gram_deviation(backward.matrix()))
            losses = {name: value / steps for name, value in sums.items()}
            entry = {"block": "paper", "epoch": epoch, "epochs": epochs, "kept": epoch == epochs}
            history.append(entry | {"losses": losses, "deviation": distance})
            problem.report(history[-1])
        with torch.no_grad():
            solution_b, solution_f = backward.frozen(), forward.frozen()
    return Solution(solution_b, solution_f, history)
