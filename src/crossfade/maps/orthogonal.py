"""The orthogonal group O(n), home of the backward map B⊥ = exp(P) of Section 3.2.

P is skew-symmetric (Pᵀ = −P) and its upper triangle holds the parameters. The exponential only
reaches rotations (determinant +1); a closed-form start may be a reflection, so training writes
B = exp(P)·B₀ or, for the same set at a twentieth of the cost, B = cayley(P)·B₀.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Orthogonal:
    """x ↦ W x with W Wᵀ = I: lengths and angles are kept exactly.

    >>> turn = Orthogonal(np.array([[0.0, -1.0], [1.0, 0.0]], dtype=np.float32))
    >>> turn(np.array([[3.0, 4.0]], dtype=np.float32))
    array([[-4.,  3.]], dtype=float32)
    """

    kind: ClassVar[str] = "orthogonal"
    weight: NDArray[np.float32]

    @property
    def in_dim(self) -> int:
        return int(self.weight.shape[1])

    @property
    def out_dim(self) -> int:
        return int(self.weight.shape[0])

    def __call__(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        return np.matmul(x, self.weight.T, out=out)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        return {"weight": self.weight}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.float32]]) -> Orthogonal:
        return cls(tensors["weight"])


def nearest_orthogonal(matrix: NDArray[np.floating]) -> NDArray[np.float64]:
    """The orthogonal matrix nearest to `matrix` in Frobenius norm: its polar factor.

    Training in float32 drifts from O(n) by round-off; a saved map may not.

    >>> nearest_orthogonal(np.diag([2.0, -0.5]))
    array([[ 1.,  0.],
           [ 0., -1.]])
    """
    w = np.asarray(matrix, dtype=np.float64)
    eye = np.eye(len(w))
    gram = w @ w.T
    if np.linalg.norm(gram - eye) > 0.5:
        u, _, vt = np.linalg.svd(w)
        return np.asarray(u @ vt)
    # Newton–Schulz: so near, it squares the distance at each step, for two products and no SVD.
    while np.linalg.norm(gram - eye) > 1e-12 * len(w):
        w = 0.5 * (3.0 * eye - gram) @ w
        gram = w @ w.T
    return w


def skew_tensor(upper: torch.Tensor) -> torch.Tensor:
    """P for training, from the strict upper triangle of `upper` (n, n); the rest is not looked at.

    Kept square, because scattering a flat triangle costs more than the solve it feeds.
    """
    half = upper.triu(1)
    return half - half.T


def exp_tensor(upper: torch.Tensor) -> torch.Tensor:
    """exp(P) for training, as the paper computes it at every step."""
    import torch

    return torch.matrix_exp(skew_tensor(upper))


def cayley_tensor(upper: torch.Tensor, rows: int | None = None) -> torch.Tensor:
    """(I − P/2)⁻¹(I + P/2): every rotation without the eigenvalue −1, for one linear solve.

    It agrees with exp(P) to second order at P = 0, so learning rates carry over. With `rows` only
    that many of its first rows are solved for.
    """
    import torch

    half = skew_tensor(upper) / 2
    eye = torch.eye(len(upper), dtype=upper.dtype, device=upper.device)
    wanted = eye[:, :rows]
    # (I − H)⁻¹(I + H) = 2(I − H)⁻¹ − I, and the transpose of (I − H)⁻¹ is (I + H)⁻¹.
    solved: torch.Tensor = torch.linalg.solve(eye + half, wanted)
    return (2 * solved - wanted).T
