"""Regularizers that keep a square weight near O(n): L_λ (Eqs. 5, 6), SO (Eq. 3) and SRIP."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Regularizer = Callable[[torch.Tensor], torch.Tensor]


def gram_deviation(weight: torch.Tensor) -> torch.Tensor:
    """‖WWᵀ − I‖_F.

    >>> gram_deviation(torch.diag(torch.tensor([1.0, 2.0])))
    tensor(3.)
    """
    gram = weight @ weight.T
    eye = torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    # A zero norm has no gradient; the clamp gives it a zero one, so a start on O(n) is allowed.
    return (gram - eye).square().sum().clamp_min(1e-24).sqrt()


def lambda_smooth(weight: torch.Tensor, lam: float, alpha: float) -> torch.Tensor:
    """σ(α(‖WWᵀ−I‖_F − λ)) · ‖WWᵀ−I‖_F (Eq. 6): a switch that turns on smoothly at λ.

    >>> lambda_smooth(2 * torch.eye(1), lam=3.0, alpha=10.0)
    tensor(1.5000)
    """
    distance = gram_deviation(weight)
    return torch.sigmoid(alpha * (distance - lam)) * distance


def lambda_heaviside(weight: torch.Tensor, lam: float) -> torch.Tensor:
    """H(‖WWᵀ−I‖_F − λ) · ‖WWᵀ−I‖_F (Eq. 5): on at λ and above, off below.

    >>> float(lambda_heaviside(2 * torch.eye(1), lam=3.1))
    0.0
    """
    distance = gram_deviation(weight)
    return distance * (distance >= lam)


def soft_orthogonality(weight: torch.Tensor) -> torch.Tensor:
    """SO: ‖WWᵀ−I‖_F itself, the case λ = 0 of the Heaviside form."""
    return gram_deviation(weight)


def srip(
    weight: torch.Tensor, iterations: int = 2, start: torch.Tensor | None = None
) -> torch.Tensor:
    """SRIP: the spectral norm of WᵀW − I, by power iteration from a random or given vector.

    >>> srip(torch.diag(torch.tensor([1.0, 2.0])), iterations=20, start=torch.ones(2))
    tensor(3.)
    """
    n = weight.shape[1]
    v = torch.randn(n, dtype=weight.dtype, device=weight.device) if start is None else start

    def residual(x: torch.Tensor) -> torch.Tensor:
        return weight.T @ (weight @ x) - x

    # The iteration finds the direction; only the final norm is differentiated.
    with torch.no_grad():
        v = v / v.norm()
        for _ in range(iterations):
            u = residual(v)
            v = u / u.norm().clamp_min(1e-12)
    return residual(v).square().sum().clamp_min(1e-24).sqrt()


def regularizer(name: str, lam: float, alpha: float) -> Regularizer | None:
    """The regularizer of that name: `smooth`, `heaviside`, `so` or `srip`; None where λ = ∞.

    >>> regularizer("smooth", math.inf, 10.0) is None
    True
    """
    if name == "so":
        return soft_orthogonality
    if name == "srip":
        return srip
    if math.isinf(lam):
        return None
    if name == "heaviside":
        return lambda weight: lambda_heaviside(weight, lam)
    return lambda weight: lambda_smooth(weight, lam, alpha)
