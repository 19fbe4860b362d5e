"""The spaces vectors live in, and the checks at their borders.

A map reads one space and writes another. `Side` is what an upgrade knows of the space it reads: its
dimension, its normalization, and the mean vector seen while fitting. The mean is a fingerprint:
embedding models rarely share it, so a batch that matches the other side's mean and not its own was
handed to the wrong map, which dimensions alone cannot tell where both models have the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import BadInput, BadRow

Normalization = Literal["l2", "none"]
DIRECTION = {"old": "forward", "new": "backward"}
# Few rows make a noisy mean, and a lone query must never be refused on a hunch.
FINGERPRINT_ROWS, FINGERPRINT_SAMPLE = 64, 1024
FINGERPRINT_MATCH, FINGERPRINT_MISS = 0.8, 0.3


@dataclass(frozen=True, eq=False)
class Side:
    """The old or the new model's space."""

    name: Literal["old", "new"]
    dim: int
    normalization: Normalization
    mean: NDArray[np.float32]

    def check_shape(self, x: NDArray[np.generic], other: Side) -> None:
        """Refuse an array that cannot be vectors of this side."""
        if x.dtype.kind != "f":
            raise BadInput(
                f"vectors are {x.dtype}, not floating point",
                step=f"pass the {self.name} model's vectors as float16, float32 or float64",
            )
        if x.ndim not in (1, 2):
            raise BadInput(
                f"vectors have {x.ndim} dimensions",
                step=f"pass one vector ({self.dim},) or an array (rows, {self.dim})",
            )
        if x.shape[-1] != self.dim:
            raise BadInput(
                f"vectors have dimension {x.shape[-1]}, "
                f"but {DIRECTION[self.name]} reads {self.name} vectors of dimension {self.dim}",
                step=f"these look like {other.name} vectors: use {DIRECTION[other.name]}"
                if x.shape[-1] == other.dim
                else "use the vectors of the model this upgrade was fitted on",
            )

    def check_fingerprint(self, x: NDArray[np.floating], other: Side) -> None:
        """Refuse rows whose mean is the other side's and not this one's."""
        if len(x) < FINGERPRINT_ROWS or self.dim != other.dim:
            return
        mean = x.mean(axis=0, dtype=np.float64)
        if cosine(mean, other.mean) > FINGERPRINT_MATCH and cosine(mean, self.mean) < (
            FINGERPRINT_MISS
        ):
            raise BadInput(
                f"these look like {other.name} vectors, but {DIRECTION[self.name]} reads "
                f"{self.name} vectors",
                step=f"use {DIRECTION[other.name]}",
            )


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Cosine of two vectors; 0 where one is zero.

    >>> cosine(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    1.0
    """
    scale = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.dot(a, b)) / scale if scale > 0 else 0.0


def inverse_norms(x: NDArray[np.float32], side: str) -> NDArray[np.float32]:
    """1/‖x_i‖ for every row; a NaN, infinite or zero row is refused by its number.

    >>> inverse_norms(np.array([[0.0, 2.0]], dtype=np.float32), "old")
    array([0.5], dtype=float32)
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.vecdot(x, x)
    # One comparison finds NaN, infinity and zero alike.
    good = (squares > 0) & (squares < np.inf)
    if not good.all():
        refuse_bad_rows(x, side)
        # Finite and non-zero, but its square under- or overflows float32.
        squares = np.vecdot(x, x, dtype=np.float64)
    return np.asarray(1.0 / np.sqrt(squares), dtype=np.float32)


def normalized(x: NDArray[np.float32], how: str, side: str) -> NDArray[np.float32]:
    """Rows of unit length for `l2`, as they are for `none`.

    >>> normalized(np.array([[0.0, 2.0]], dtype=np.float32), "l2", "old")
    array([[0., 1.]], dtype=float32)
    """
    return x * inverse_norms(x, side)[:, None] if how == "l2" else x


def refuse_bad_rows(x: NDArray[np.floating], side: str) -> None:
    """Raise `BadRow` for the first row with a NaN, an infinity, or nothing but zeros."""
    for row, problem in bad_rows(x).items():
        raise BadRow(row, problem, side=side, step="drop it or re-embed it")


def fit_dim(x: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """Rows cut to `dim`, or padded with zeros to it.

    >>> fit_dim(np.ones((1, 2), dtype=np.float32), 3)
    array([[1., 1., 0.]], dtype=float32)
    """
    if x.shape[1] >= dim:
        return x[:, :dim]
    out = np.zeros((len(x), dim), dtype=x.dtype)
    out[:, : x.shape[1]] = x
    return out
