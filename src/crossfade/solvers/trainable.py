"""The maps as torch modules while they are trained; `frozen()` gives the numpy map back."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossfade.maps import Affine, Mlp, NearOrthogonal, Orthogonal
from crossfade.maps.orthogonal import cayley_tensor, exp_tensor, nearest_orthogonal


def to_numpy(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().cpu().numpy().copy()


class TrainableRotation(nn.Module):
    """W = exp(P) with P skew-symmetric, as in the paper."""

    def __init__(self, upper: torch.Tensor) -> None:
        super().__init__()
        self.upper = nn.Parameter(upper)

    def matrix(self) -> torch.Tensor:
        return exp_tensor(self.upper)

    def apply_with(self, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x @ matrix.T

    def frozen(self) -> Orthogonal:
        return Orthogonal(nearest_orthogonal(to_numpy(self.matrix())).astype(np.float32))


class TrainableTurn(nn.Module):
    """W = cayley(P)·W₀ from P = 0; W₀ carries the determinant, so a reflection stays one.

    It is trained on vectors that W₀ has mapped already, and gives only the first `rows` of their
    coordinates: those the loss looks at where old is shorter than new.
    """

    def __init__(self, start: torch.Tensor, rows: int) -> None:
        super().__init__()
        self.register_buffer("start", start)
        self.rows = rows
        self.upper = nn.Parameter(torch.zeros_like(start))

    def forward(self, mapped: torch.Tensor) -> torch.Tensor:
        return mapped @ cayley_tensor(self.upper, self.rows).T

    def frozen(self) -> Orthogonal:
        w = to_numpy(cayley_tensor(self.upper)) @ to_numpy(self.get_buffer("start"))
        return Orthogonal(nearest_orthogonal(w).astype(np.float32))


class TrainableAffine(nn.Module):
    """W x + b, free; near-orthogonality, where asked for, is a term of the loss."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, *, near_orthogonal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.bias = nn.Parameter(bias.clone())
        self.near_orthogonal = near_orthogonal

    def matrix(self) -> torch.Tensor:
        return self.weight

    def apply_with(self, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x @ matrix.T + self.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T + self.bias

    def frozen(self) -> Affine | NearOrthogonal:
        kind = NearOrthogonal if self.near_orthogonal else Affine
        return kind(to_numpy(self.weight), to_numpy(self.bias))


class TrainableMlp(nn.Module):
    """The map of `maps/mlp.py`. With a skip the last layer starts at zero: F starts as the skip."""

    def __init__(
        self,
        d: int,
        n: int,
        hidden: tuple[int, ...],
        skip: tuple[torch.Tensor, torch.Tensor] | None,
        scale: float,
    ) -> None:
        super().__init__()
        widths = (d, *hidden, n)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        # Hidden units work on inputs of unit variance; unit vectors have variance 1/d.
        self.scale = scale
        self.skip = None
        if skip is not None:
            self.skip = nn.Linear(d, n)
            with torch.no_grad():
                self.skip.weight.copy_(skip[0])
                self.skip.bias.copy_(skip[1])
                last = self.layers[-1]
                assert isinstance(last, nn.Linear)  # noqa: S101 - built three lines above
                last.weight.zero_()
                last.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x * self.scale
        for i, layer in enumerate(self.layers):
            h = layer(h)
            if i < len(self.layers) - 1:
                h = torch.relu(h)
        return h if self.skip is None else h + self.skip(x)

    def frozen(self) -> Mlp:
        layers = [(to_numpy(m.weight), to_numpy(m.bias)) for m in self.layers]  # type: ignore[arg-type]
        first_weight, first_bias = layers[0]
        layers[0] = (first_weight * np.float32(self.scale), first_bias)
        skip = None if self.skip is None else (to_numpy(self.skip.weight), to_numpy(self.skip.bias))
        return Mlp(tuple(layers), skip)


def input_scale(old: NDArray[np.float32]) -> float:
    """√d over the mean length: brings the coordinates of `old` to variance about one.

    >>> input_scale(np.eye(4, dtype=np.float32))
    2.0
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", old[:4096], old[:4096]))
    return math.sqrt(old.shape[1]) / float(lengths.mean())
