"""A migration gives way to whatever serves searches on the same machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

FullSpeed = Annotated[
    bool,
    typer.Option("--full-speed", help="Compete with other programs as an equal."),
]
# Of all processors, for reading and writing rows; a model takes what it needs.
SHARE = 0.1
# About a tenth of the processor's time beside a program that wants all of it; all of it otherwise.
_NICE = 10


def give_way(full_speed: bool) -> None:
    """Run at a low priority; said before a store's library starts its threads, who inherit it."""
    if not full_speed and hasattr(os, "nice"):
        os.nice(max(0, _NICE - os.nice(0)))
