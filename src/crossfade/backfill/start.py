"""What a gallery holds before backfilling: lifted by F, never lifted, or some of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float
from crossfade.errors import BadInput
from crossfade.upgrade import Upgrade

OLD, LIFTED, FILLED = "old", "lifted", "filled"
STATES = (OLD, LIFTED, FILLED)
State = str | NDArray[np.str_]
"""One state for all items, or one for each."""


def held_before(
    upgrade: Upgrade, old: Float, lifted: Float, mapped: Float, state: State
) -> tuple[Float, NDArray[np.bool_], NDArray[np.bool_]]:
    """What each item stores now (rows, n), and whether it is still old, or backfilled already.

    `old` items store the old vector as it sits in the shared space, `lifted` ones F(old), `filled`
    ones B(new).

    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(100, 4)).astype("f4")
    >>> old = new + 0.1 * rng.normal(size=(100, 4)).astype("f4")
    >>> upgrade = Upgrade(solver="closed_form").fit(old, new)
    >>> f, b = upgrade.forward(old), upgrade.backward(new)
    >>> before, _, filled = held_before(upgrade, old, f, b, np.repeat(["lifted", "filled"], 50))
    >>> np.array_equal(before[:50], f[:50]), np.array_equal(before[50:], b[50:]), int(filled.sum())
    (True, True, 50)
    """
    states = np.broadcast_to(np.asarray(state), (len(old),)) if isinstance(state, str) else state
    if len(states) != len(old):
        raise BadInput(f"there are {len(states)} states for {len(old)} items")
    unknown = np.flatnonzero(~np.isin(states, STATES))
    if len(unknown):
        raise BadInput(
            f"row {unknown[0]} is {str(states[unknown[0]])!r}, which is no state of an item",
            step=f"use {', '.join(STATES)}",
        )
    filled = states == FILLED
    raw = states == OLD
    if not raw.any() and not filled.any():
        return lifted, raw, filled
    out = np.where(filled[:, None], mapped, lifted)
    if raw.any():
        out[raw] = upgrade.in_shared_space(old[raw])
    return out, raw, filled
