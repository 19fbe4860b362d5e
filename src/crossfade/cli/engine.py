"""The options by which a command names the engine that does its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from crossfade.engines import Engine, open_engine

PANEL = "Where the work is done"


class EngineOption(StrEnum):
    local = "local"
    ray = "ray"


EngineChoice = Annotated[
    EngineOption,
    typer.Option("--engine", help="This process, or the workers of Ray.", rich_help_panel=PANEL),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="HOST:PORT of a running Ray cluster; without it one is started here, and stopped.",
        rich_help_panel=PANEL,
    ),
]
NumActors = Annotated[
    int | None,
    typer.Option(min=1, help="By default one for each processor or GPU.", rich_help_panel=PANEL),
]
GpusPerActor = Annotated[float, typer.Option(min=0, rich_help_panel=PANEL)]


@contextmanager
def engine_of(
    name: EngineOption,
    address: str | None,
    num_actors: int | None = None,
    gpus_per_actor: float = 0.0,
) -> Iterator[Engine | None]:
    """The engine that was named, let go at the end."""
    engine = open_engine(
        name.value, address=address, num_actors=num_actors, gpus_per_actor=gpus_per_actor
    )
    try:
        yield engine
    finally:
        if engine is not None:
            engine.close()
