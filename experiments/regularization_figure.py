"""What L_λ does: Figure 2. Its value at several λ, at several α, and the angles it leaves in W."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from crossfade.losses.orthogonality import lambda_smooth
from crossfade.maps.near_orthogonal import column_angles, deviation
from crossfade.solvers.device import pick_device, seeded
from experiments.outcome import Outcome

PAPER = "Figure 2"
LAMBDAS = (0.0, 3.0, 6.0, 12.0)
ALPHAS = (0.5, 1.0, 2.0, 10.0)
AXIS = np.linspace(0, 20, 201)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dim", type=int, default=128, help="W is square, of this dimension")
    parser.add_argument("--steps", type=int, default=2000)


def values(lam: float, alpha: float) -> list[float]:
    """L_λ against ‖WWᵀ−I‖, through the loss itself: W = √(1 + x) of one dimension is x away."""
    return [
        float(lambda_smooth(torch.tensor([[np.sqrt(1 + x)]]), lam, alpha)) for x in AXIS.tolist()
    ]


def angles(lam: float, dim: int, steps: int, seed: int, device: str) -> tuple[np.ndarray, float]:
    """Angles between the columns of a random W after L_λ alone was minimized, and ‖WWᵀ−I‖."""
    where = pick_device(device)
    with seeded(seed):
        weight = torch.nn.Parameter(torch.nn.Linear(dim, dim).weight.detach().to(where))
        optimizer = torch.optim.Adam([weight], lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            lambda_smooth(weight, lam, 10.0).backward()
            optimizer.step()
            schedule.step()
    found = weight.detach().cpu().numpy()
    return column_angles(found), deviation(found)


def run(args: argparse.Namespace) -> Outcome:
    out = Outcome(
        "regularization",
        "What L_λ does to an affine map",
        PAPER,
        f"Nothing is substituted: W is a random ({args.dim}, {args.dim}) matrix.",
        ("λ",),
        ("spread of angles in degrees", "‖WWᵀ−I‖"),
    )
    out.facts = {"dimension": args.dim, "steps": args.steps, "seeds": len(args.seeds)}
    series: dict[str, Any] = {"kind": "regularization", "axis": AXIS.tolist()}
    series["lambda"] = {f"{lam:g}": values(lam, 10.0) for lam in LAMBDAS}
    series["alpha"] = {f"{alpha:g}": values(6.0, alpha) for alpha in ALPHAS}
    series["angles"] = {}
    for lam in LAMBDAS:
        found = [angles(lam, args.dim, args.steps, s, args.device) for s in args.seeds]
        counts, edges = np.histogram(found[0][0], bins=120, range=(60, 120), density=True)
        series["angles"][f"{lam:g}"] = counts.round(5).tolist()
        series["edges"] = edges.tolist()
        spread = [float(a.std()) for a, _ in found]
        out.add(
            (f"{lam:g}",), None, {out.metrics[0]: spread, out.metrics[1]: [d for _, d in found]}
        )
    out.series = series
    spreads = [row.mean(out.metrics[0]) for row in out.rows]
    # A random W may start nearer than a large λ: then nothing moves it.
    out.judge(
        "smaller λ, columns nearer to orthogonal: the spread of angles grows with λ",
        "holds" if all(np.diff(spreads) > -1e-3) and spreads[-1] > spreads[0] else "does not hold",
        ", ".join(f"{s:.2f}° at λ = {lam:g}" for s, lam in zip(spreads, LAMBDAS, strict=True)),
        ("0",),
    )
    sharp, soft = np.array(series["alpha"]["10"]), np.array(series["alpha"]["0.5"])
    step = AXIS * (AXIS >= 6)
    gaps = [float(np.abs(v - step)[np.abs(AXIS - 6) > 1].max()) for v in (sharp, soft)]
    out.judge(
        "larger α, nearer to the Heaviside step",
        "holds" if gaps[0] < gaps[1] else "does not hold",
        f"largest gap farther than 1 from λ: {gaps[0]:.3f} at α = 10, {gaps[1]:.2f} at α = 0.5",
        None,
    )
    return out
