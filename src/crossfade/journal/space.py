"""In which coordinates the shared column is written: the new model's own, wherever B can be undone.

An orthogonal B only turns the new model's space: B⁻¹ takes everything in the shared space into the
new model's own coordinates, and all inner products stay. So lifted rows hold B⁻¹(F(old)), filled
ones the new model's vector as it is, and both are asked with plain new vectors. What is left after
`finish` is an ordinary index of the new model. B itself is for the untouched old vectors alone.

A near-orthogonal or affine B stretches the space. Its column is written in the shared space, and
new vectors need B for as long as it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.backfill.blend import blend
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


def new_as_asked(upgrade: Upgrade, space: Space) -> Callable[[ArrayLike], Float]:
    """What makes of new vectors, rows or one, those that a column in this space is asked with."""
    return upgrade.backward_.unmapped if space == "new" else upgrade.backward


@dataclass(frozen=True, eq=False)
class SharedColumn:
    """What goes into the shared column, and what it is asked with."""

    forward: Directed
    """F, in the column's coordinates."""
    ask: Callable[[ArrayLike], Float]
    """New vectors, as filled rows hold them and as they are asked with."""
    turn: Float | None
    """B⁻¹, where the column is in the new model's space."""
    as_is: Callable[[ArrayLike], Float]
    """Old vectors as they sit in the shared space."""
    share: float = 1.0
    """Of F(old) in what lifted rows hold; the rest is the old vector as it is."""

    @classmethod
    def of(cls, upgrade: Upgrade, space: Space, lift: float = 1.0) -> SharedColumn:
        if space == "shared":
            asked = new_as_asked(upgrade, space)
            return cls(upgrade.forward_, asked, None, upgrade.in_shared_space, lift)
        undo = np.ascontiguousarray(upgrade.backward_.map.tensors()["weight"].T)
        forward = replace(upgrade.forward_, map=_followed(upgrade.forward_.map, undo))
        asked = new_as_asked(upgrade, space)
        return cls(forward, asked, undo, upgrade.in_shared_space, lift)

    def lift(self, old: ArrayLike) -> Float:
        """Old vectors (rows, d), or one (d,), as lifted rows hold them: F(old), or a mixture of it
        and the old vector as it is."""
        if self.share == 1:
            return self.forward(old)
        rows = np.atleast_2d(np.asarray(old))
        placed = self.as_is(rows)
        if self.turn is not None:
            placed = placed @ self.turn.T
        mixed = blend(self.forward(rows), placed, self.share)
        return mixed if np.ndim(old) == 2 else mixed[0]

    def fill(
        self, plan: Plan, new: ArrayLike, old: ArrayLike, places: NDArray[np.int64], rows: int
    ) -> Float:
        """What rows hold that stand at `places` of the plan's order, of `rows` in all."""
        if self.turn is not None and plan.quiet is not None:
            direction = np.asarray(self.turn @ plan.quiet.direction, np.float32)
            plan = replace(plan, quiet=replace(plan.quiet, direction=direction))
        return plan.stored(self.ask(new), self.forward(old), places, rows)


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
