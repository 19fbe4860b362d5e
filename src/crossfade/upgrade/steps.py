"""B as steps that other software knows: to unit length, and products with a matrix.

orthogonal B, unit vectors   normalize, one product: the cut and old's axes are folded into it
a B with a bias, as above    normalize, product, normalize, and the cut as a product of its own
vectors as they are          one product
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.maps import Mlp, Orthogonal
from crossfade.spaces import fit_dim
from crossfade.upgrade.upgrade import Upgrade

Float = NDArray[np.float32]
QuerySpace = Literal["old", "shared"]
"""Queries for the untouched index of old vectors, or for one in the shared space."""


@dataclass(frozen=True, eq=False)
class Product:
    """x ↦ W x + b, with W of shape (out, in)."""

    weight: Float
    bias: Float | None = None


@dataclass(frozen=True)
class Normalize:
    """x ↦ x / ‖x‖."""

    dim: int


Step = Product | Normalize


def query_steps(upgrade: Upgrade, space: QuerySpace = "old") -> tuple[Step, ...]:
    """What makes of a new vector the query that `query_for_old`, or `backward`, makes of it.

    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(500, 6)).astype("f4")
    >>> upgrade = Upgrade(solver="closed_form").fit(new[:, :4], new)
    >>> first, second = query_steps(upgrade)
    >>> first, second.weight.shape
    (Normalize(dim=6), (4, 6))
    """
    directed = upgrade.backward_
    b = directed.map
    if isinstance(b, Mlp):
        raise BadInput("a backward map with hidden layers is no product with a matrix")
    tensors = b.tensors()
    weight, bias = tensors["weight"], tensors.get("bias")
    taken = None if space == "shared" else _taken(upgrade)
    if directed.reads.normalization != "l2":
        return (_followed(weight, bias, taken),)
    unit = Normalize(upgrade.new_dim_)
    if isinstance(b, Orthogonal):
        # Lengths stay, so nothing has to be normalized before the cut.
        return unit, _followed(weight, None, taken)
    steps = (unit, Product(weight, bias), Normalize(upgrade.shared_dim_))
    return steps if taken is None else (*steps, Product(taken))


def _taken(upgrade: Upgrade) -> Float | None:
    """The shared space as the old index takes it: cut or padded, on old's own axes."""
    cut = fit_dim(np.eye(upgrade.shared_dim_, dtype=np.float32), upgrade.old_dim_).T
    if upgrade.axes_ is not None:
        return np.ascontiguousarray(upgrade.axes_.T @ cut)
    return None if upgrade.old_dim_ == upgrade.shared_dim_ else np.ascontiguousarray(cut)


def _followed(weight: Float, bias: Float | None, taken: Float | None) -> Product:
    if taken is None:
        return Product(weight, bias)
    return Product(taken @ weight, None if bias is None else taken @ bias)
