"""In which coordinates the shared column is written: the new model's own, wherever B can be undone.

An orthogonal B only turns the new model's space: B⁻¹ takes everything in the shared space into the
new model's own coordinates, and all inner products stay. So lifted rows hold B⁻¹(F(old)), filled
ones the new model's vector as it is, and both are asked with plain new vectors. What is left after
`finish` is an ordinary index of the new model. B itself is for the untouched old vectors alone.

A near-orthogonal or affine B stretches the space. Its column is written in the shared space, and
new vectors need B for as long as it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.backfill.plan import Plan
from crossfade.maps import Affine, Map, Mlp, Orthogonal
from crossfade.maps.directed import Directed
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]
Space = Literal["new", "shared"]


def space_of(upgrade: Upgrade) -> Space:
    """Where a migration with this upgrade ends."""
    turned = isinstance(upgrade.backward_.map, Orthogonal)
    return "new" if turned and upgrade.shared_dim_ == upgrade.new_dim_ else "shared"


@dataclass(frozen=True, eq=False)
class SharedColumn:
    """What goes into the shared column, and what it is asked with."""

    lift: Directed
    """Old vectors, as lifted rows hold them and as they are asked with."""
    ask: Directed
    """New vectors, as filled rows hold them and as they are asked with."""
    turn: Float | None
    """B⁻¹, where the column is in the new model's space."""

    @classmethod
    def of(cls, upgrade: Upgrade, space: Space) -> SharedColumn:
        if space == "shared":
            return cls(upgrade.forward_, upgrade.backward_, None)
        undo = np.ascontiguousarray(upgrade.backward_.map.tensors()["weight"].T)
        same = Orthogonal(np.eye(upgrade.new_dim_, dtype=np.float32))
        return cls(
            replace(upgrade.forward_, map=_followed(upgrade.forward_.map, undo)),
            replace(upgrade.backward_, map=same),
            undo,
        )

    def fill(
        self, plan: Plan, new: ArrayLike, old: ArrayLike, places: NDArray[np.int64], rows: int
    ) -> Float:
        """What rows hold that stand at `places` of the plan's order, of `rows` in all."""
        if self.turn is not None and plan.quiet is not None:
            direction = np.asarray(self.turn @ plan.quiet.direction, np.float32)
            plan = replace(plan, quiet=replace(plan.quiet, direction=direction))
        return plan.stored(self.ask(new), self.lift(old), places, rows)


def _followed(first: Map, turn: Float) -> Map:
    """A map followed by a rotation, in one: the last product takes it along.

    >>> double = Affine(2 * np.eye(2, dtype="f4"), np.ones(2, "f4"))
    >>> quarter = np.array([[0, -1], [1, 0]], "f4")
    >>> _followed(double, quarter)(np.array([[1, 0]], "f4")).tolist()
    [[-1.0, 3.0]]
    """
    if isinstance(first, Mlp):
        *rest, (weight, bias) = first.layers
        skip = None if first.skip is None else (turn @ first.skip[0], turn @ first.skip[1])
        return Mlp((*rest, (turn @ weight, turn @ bias)), skip)
    tensors = first.tensors()
    bias = tensors.get("bias", np.zeros(first.out_dim, np.float32))
    return Affine(turn @ tensors["weight"], turn @ bias)
