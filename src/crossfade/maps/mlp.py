"""Multi-layer maps for F, "multiple projection layers" of Section 3.4, with an affine skip.

The skip is where the closed form lives: with the last layer at zero the whole map *is* the ridge
solution, so training starts there and can only add to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Mlp:
    """x ↦ A x + a + W_k relu(… relu(W_1 x + b_1) …) + b_k; the skip (A, a) may be absent.

    >>> one = np.ones((1, 1), dtype=np.float32)
    >>> f = Mlp(layers=((one, -one[0]), (one, 0 * one[0])), skip=None)
    >>> f(np.array([[0.5], [3.0]], dtype=np.float32))
    array([[0.],
           [2.]], dtype=float32)
    """

    kind: ClassVar[str] = "mlp"
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    skip: tuple[NDArray[np.float32], NDArray[np.float32]] | None

    @property
    def in_dim(self) -> int:
        return int(self.layers[0][0].shape[1])

    @property
    def out_dim(self) -> int:
        return int(self.layers[-1][0].shape[0])

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(int(weight.shape[0]) for weight, _ in self.layers[:-1])

    def __call__(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        h = x
        last = len(self.layers) - 1
        for i, (weight, bias) in enumerate(self.layers):
            h = np.matmul(h, weight.T, out=out if i == last else None)
            h += bias
            if i < last:
                np.maximum(h, 0.0, out=h)
        if self.skip is not None:
            h += x @ self.skip[0].T
            h += self.skip[1]
        return h

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        out = {}
        for i, (weight, bias) in enumerate(self.layers):
            out[f"layers.{i}.weight"] = weight
            out[f"layers.{i}.bias"] = bias
        if self.skip is not None:
            out["skip.weight"], out["skip.bias"] = self.skip
        return out

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.float32]]) -> Mlp:
        layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        while f"layers.{len(layers)}.weight" in tensors:
            i = len(layers)
            layers.append((tensors[f"layers.{i}.weight"], tensors[f"layers.{i}.bias"]))
        skip = (tensors["skip.weight"], tensors["skip.bias"]) if "skip.weight" in tensors else None
        if not layers:
            raise KeyError("layers.0.weight")
        return cls(tuple(layers), skip)
