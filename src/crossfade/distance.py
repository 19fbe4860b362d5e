"""How vectors are compared: the distance, which is never the metric that quality is measured in."""

from __future__ import annotations

from typing import Literal

from crossfade.errors import BadInput

Distance = Literal["cosine", "dot", "l2"]
DISTANCES: tuple[Distance, ...] = ("cosine", "dot", "l2")
_FORMER: dict[str, Distance] = {"euclidean": "l2"}


def check_distance(name: str) -> Distance:
    """The distance of this name, under a former one too.

    >>> check_distance("euclidean")
    'l2'
    >>> check_distance("hamming")
    Traceback (most recent call last):
    crossfade.errors.BadInput: there is no distance 'hamming' → use one of cosine, dot, l2
    """
    known = {name: name for name in DISTANCES} | _FORMER
    if name not in known:
        raise BadInput(f"there is no distance {name!r}", step=f"use one of {', '.join(DISTANCES)}")
    return known[name]
