"""Which engine a name on the command line means."""

from __future__ import annotations

from typing import Literal

from crossfade.engines.contract import Engine
from crossfade.errors import BadInput

EngineName = Literal["local", "ray"]


def open_engine(
    name: EngineName,
    *,
    address: str | None = None,
    num_actors: int | None = None,
    gpus_per_actor: float = 0.0,
) -> Engine | None:
    """The engine of this name; None is this process itself. Nothing is started yet.

    >>> open_engine("local") is None
    True
    """
    if name == "ray":
        from crossfade.engines.ray import RayEngine

        return RayEngine(address=address, num_actors=num_actors, gpus_per_actor=gpus_per_actor)
    if address is not None or num_actors is not None or gpus_per_actor:
        raise BadInput("workers were asked for, and the engine is local", step="add --engine ray")
    return None
