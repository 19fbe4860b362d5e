"""What the commands of `crossfade migrate` have in common: their store, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from crossfade.cli.output import PlainConsole
from crossfade.errors import BadInput
from crossfade.migration import Migration
from crossfade.stores import METRICS
from crossfade.stores.registry import built_in, forms

StorePlace = Annotated[str, typer.Argument(help=f"The store: {forms(built_in())}.")]
UpgradeFolder = Annotated[
    Path | None, typer.Option(help="The upgrade, if its folder was moved since `start`.")
]
IdColumn = Annotated[
    str | None, typer.Option(help="The column of ids, where `start` cannot tell it.")
]
VectorColumn = Annotated[
    str | None, typer.Option(help="The column of old vectors, where `start` cannot tell it.")
]
MetricName = Annotated[
    str | None,
    typer.Option(help=f"How vectors are compared: {', '.join(METRICS)}; by default the index's."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, do nothing.")]
AsJson = Annotated[str | None, typer.Option("--json", metavar="FILE", help="'-' is stdout.")]


@contextmanager
def opened(
    store: str,
    upgrade: Path | None,
    id: str | None = None,
    vector: str | None = None,
    metric: str | None = None,
) -> Iterator[Migration]:
    """The migration of a store, whose connections are let go at the end."""
    if metric is not None and metric not in METRICS:
        raise BadInput(f"there is no metric {metric!r}", step=f"use one of {', '.join(METRICS)}")
    migration = Migration(store, upgrade, id=id, vector=vector, metric=metric)
    try:
        yield migration
    finally:
        migration.close()


def show_statements(statements: dict[str, list[str]]) -> None:
    """What each step will say to the store."""
    console = PlainConsole()
    for step, said in statements.items():
        console.print(Text(step, "bold"))
        for statement in said:
            console.print(f"  {statement}", soft_wrap=True)


def finishing_line(dry_run: bool, done: str | None, command: str) -> None:
    """The last line: what was done, and what to type next."""
    console = PlainConsole()
    if dry_run:
        console.print("nothing was done (--dry-run)")
        return
    if done is not None:
        console.print(done)
    console.print(f"next: {command}", soft_wrap=True)
