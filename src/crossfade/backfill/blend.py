"""What a backfilled item stores: normalize(a·B(new) + (1 − a)·F(old)); a = 1 is the paper's.

Both a and the volume may change along an order: items that come first are those whose F(old) is
least to be trusted, and they are also those that deserve the least weight in a ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.volume import Quiet
from crossfade.errors import BadInput

Float = NDArray[np.float32]
MOST = 2.0
"""An a beyond 1 leads from F(old) past B(new); beyond this nothing is left of either."""


@dataclass(frozen=True)
class Blend:
    """a and volume at the first place of an order and at its last, and evenly between.

    >>> str(Blend()), str(Blend(0.5, 0.5)), str(Blend(1, 0.3, 0.8))
    ('1', '0.5', '1→0.3, volume 0.8→1')
    """

    first: float = 1.0
    last: float = 1.0
    first_volume: float = 1.0
    last_volume: float = 1.0

    def __post_init__(self) -> None:
        for a in (self.first, self.last):
            if not 0 <= a <= MOST:
                raise BadInput(f"a blend of {a}", step=f"use a number from 0 to {MOST:g}")
        for volume in (self.first_volume, self.last_volume):
            if not 0 < volume <= 1:
                raise BadInput(f"a volume of {volume}", step="use a number above 0, at most 1")

    @property
    def plain(self) -> bool:
        """Whether this is the paper's replacement: B(new) as it is."""
        return self == Blend()

    @property
    def loud(self) -> bool:
        """Whether no score is turned down."""
        return self.first_volume == self.last_volume == 1

    def __str__(self) -> str:
        a = _between(self.first, self.last)
        return a if self.loud else f"{a}, volume {_between(self.first_volume, self.last_volume)}"


def blend(mapped: Float, lifted: Float, a: float) -> Float:
    """Unit vectors between B(new) and F(old), the same a for all; where a = 1, B(new) as it is.

    >>> blend(np.array([[1.0, 0.0]], "f4"), np.array([[0.0, 1.0]], "f4"), 0.5).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377]]
    """
    return stored(mapped, lifted, Blend(a, a))


def stored(
    mapped: Float,
    lifted: Float,
    how: Blend,
    shares: NDArray[np.floating] | float = 0.0,
    quiet: Quiet | None = None,
) -> Float:
    """What items store that stand at `shares` of the order, from 0 (first) to 1 (last).

    `mapped` is B(new), `lifted` F(old), both (rows, n). Turning scores down needs `quiet`.

    >>> b, f = np.array([[1.0, 0.0]] * 2, "f4"), np.array([[0.0, 1.0]] * 2, "f4")
    >>> stored(b, f, Blend(1.0, 0.0), np.array([0.0, 1.0])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if how.plain:
        return mapped
    place = np.broadcast_to(np.asarray(shares, np.float32), (len(mapped),))[:, None]
    out = mapped
    if (how.first, how.last) != (1, 1):
        a = np.float32(how.first) + np.float32(how.last - how.first) * place
        out = _unit(a * mapped + (1 - a) * lifted)
    if how.loud:
        return out
    if quiet is None:
        raise BadInput("a volume below 1 needs a quiet direction", step="learn one from queries")
    volume = np.float32(how.first_volume) + np.float32(how.last_volume - how.first_volume) * place
    return quiet.turned_down(_unit(out), volume)


def _unit(x: Float) -> Float:
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _between(first: float, last: float) -> str:
    return f"{first:g}" if first == last else f"{first:g}→{last:g}"
