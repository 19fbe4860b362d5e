"""Drift-Adapter: new queries into the legacy space (Vejendla, EMNLP 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crossfade.baselines.baseline import Baseline, check_training
from crossfade.errors import BadInput
from crossfade.maps import Affine, Mlp, Orthogonal
from crossfade.solvers.settings import Settings

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution

KINDS = ("procrustes", "low-rank", "mlp")


class DriftAdapter(Baseline):
    """B maps new vectors onto the old model's, which stay as they are; F is the identity.

    The original names three adapters, fitted on a small sample of pairs by mean squared error, no
    labels: orthogonal Procrustes (closed form), a low-rank affine map U Vᵀ x + t, and a compact
    residual mlp, x + W₂ act(W₁ x + b₁) + b₂; each may be followed by a learned diagonal scaling.
    `kind` is "procrustes", "low-rank" or "mlp", `scaling` the diagonal.

    Chosen here: rank 64, 256 hidden units and relu; where the dimensions differ, the residual path
    of the mlp is a linear map that starts as the cut; Procrustes takes the first rows of the
    rotation, and its scaling in closed form; Adam at 0.001, 30 epochs, batches of 1000, as every
    trained baseline; vectors of unit length. The shared space is the old model's, of its dimension.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(60, 5))
    >>> DriftAdapter(kind="procrustes").fit(new[:, :3] + 0.1, new).backward(new).shape
    (60, 3)
    """

    def __init__(
        self,
        *,
        kind: str = "mlp",
        scaling: bool = True,
        rank: int = 64,
        hidden: int = 256,
        epochs: int = 30,
        batch_size: int = 1000,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        validation: float | None = None,
        seed: int = 0,
        device: str = "auto",
        old_model: str = "",
        new_model: str = "",
    ) -> None:
        self._set(**{k: v for k, v in locals().items() if k in self._names()})

    def _settings(self) -> Settings:
        kind = self.get_params()["kind"]
        if kind not in KINDS:
            raise BadInput(f"kind={kind!r} is not known", step=f"use one of {', '.join(KINDS)}")
        check_training(self)
        return super()._settings()

    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        from crossfade.baselines.identity import padded
        from crossfade.solvers.problem import Solution

        backward: Orthogonal | Affine | Mlp
        history: list[Any]
        if self.get_params()["kind"] == "procrustes":
            backward, history = self._rotation(prepared, pairs.old_dim), []
        else:
            backward, history = self._trained(prepared, pairs)
        return Solution(backward, padded(pairs.old_dim, pairs.old_dim), history)

    def _rotation(self, prepared: Prepared, d: int) -> Orthogonal | Affine:
        rotation = prepared.problem.rotation
        n = len(rotation)
        weight = np.zeros((d, n))
        weight[: min(d, n)] = rotation[: min(d, n)]
        if self.get_params()["scaling"]:
            # s_j = Σ old_j y_j / Σ y_j² with y = W new, each coordinate by itself.
            moments = prepared.problem.moments
            along = np.einsum("ij,ji->i", weight, moments.new_old)
            length = np.einsum("ij,jk,ik->i", weight, moments.new_new, weight)
            weight *= (along / np.maximum(length, np.finfo(np.float64).tiny))[:, None]
        elif d == n:
            return Orthogonal(weight.astype(np.float32))
        return Affine(weight.astype(np.float32), np.zeros(d, np.float32))

    def _trained(self, prepared: Prepared, pairs: Pairs) -> tuple[Affine | Mlp, list[Any]]:
        import torch

        from crossfade.baselines.training import train
        from crossfade.losses.alignment import alignment
        from crossfade.solvers.device import pick_device, seeded

        p, rows = self.get_params(), prepared.problem.train
        device = pick_device(p["device"])
        old, new = (torch.from_numpy(x).to(device) for x in (rows.old, rows.new))
        d, n = pairs.old_dim, pairs.new_dim
        with seeded(p["seed"]):
            module = _module(d, n, p).to(device)
            history = train(
                module,
                len(old),
                lambda batch: {"L_B": alignment(module(new[batch]), old[batch])},
                **{k: p[k] for k in ("epochs", "batch_size", "lr", "weight_decay")},
                block="drift-adapter",
                report=prepared.problem.report,
            )
        return _frozen(module), history


def _module(d: int, n: int, params: dict[str, Any]) -> Any:
    """The adapter as a torch module: `inner`, perhaps `path`, and the diagonal `scale`."""
    import torch
    from torch import nn

    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.path: nn.Linear | None = None
            if params["kind"] == "low-rank":
                rank = min(params["rank"], d, n)
                self.inner = nn.Sequential(nn.Linear(n, rank, bias=False), nn.Linear(rank, d))
            else:
                hidden = params["hidden"]
                self.inner = nn.Sequential(nn.Linear(n, hidden), nn.ReLU(), nn.Linear(hidden, d))
                self.path = nn.Linear(n, d, bias=False)
                with torch.no_grad():
                    self.path.weight.copy_(torch.eye(d, n))
                if d == n:
                    self.path.requires_grad_(False)
            self.scale = nn.Parameter(torch.ones(d), requires_grad=params["scaling"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.inner(x)
            return self.scale * (y if self.path is None else y + self.path(x))

    return Adapter()


def _frozen(module: Any) -> Affine | Mlp:
    """The numpy map, with the scaling multiplied in."""
    from crossfade.solvers.trainable import to_numpy

    scale = to_numpy(module.scale)
    first, last = module.inner[0], module.inner[-1]
    end = scale[:, None] * to_numpy(last.weight), scale * to_numpy(last.bias)
    if module.path is None:
        return Affine((end[0] @ to_numpy(first.weight)).astype(np.float32), end[1])
    skip = scale[:, None] * to_numpy(module.path.weight), np.zeros_like(scale)
    return Mlp(((to_numpy(first.weight), to_numpy(first.bias)), end), skip)
