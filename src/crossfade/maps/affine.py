"""Affine maps between any two dimensions: B at λ = ∞ (Section 3.3) and F (Section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ W x + b with W of shape (out, in).

    >>> double = Affine(2 * np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32))
    >>> double(np.ones((1, 2), dtype=np.float32))
    array([[2., 2.]], dtype=float32)
    """

    kind: ClassVar[str] = "affine"
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    @property
    def in_dim(self) -> int:
        return int(self.weight.shape[1])

    @property
    def out_dim(self) -> int:
        return int(self.weight.shape[0])

    def __call__(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        y = np.matmul(x, self.weight.T, out=out)
        y += self.bias
        return y

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        return {"weight": self.weight, "bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.float32]]) -> Self:
        return cls(tensors["weight"], tensors["bias"])
