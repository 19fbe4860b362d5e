"""What the commands of `crossfade migrate` have in common: their store, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from crossfade.cli.allocator import share_heaps
from crossfade.cli.output import PlainConsole
from crossfade.distance import DISTANCES, check_distance
from crossfade.migration import Migration
from crossfade.stores.registry import built_in, forms

StoreAddress = Annotated[str, typer.Argument(help=f"The store: {forms(built_in())}.")]
UpgradeFolder = Annotated[
    Path | None, typer.Option(help="The upgrade, if its folder was moved since `start`.")
]
IdColumn = Annotated[
    str | None, typer.Option(help="The column of ids, where `start` cannot tell it.")
]
VectorColumn = Annotated[
    str | None, typer.Option(help="The column of old vectors, where `start` cannot tell it.")
]
DistanceName = Annotated[
    str | None,
    typer.Option(
        "--distance",
        "--metric",
        help=f"How vectors are compared: {', '.join(DISTANCES)}; by default the index's.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, do nothing.")]
AsJson = Annotated[str | None, typer.Option("--json", metavar="FILE", help="'-' is stdout.")]


@contextmanager
def opened(
    store: str,
    upgrade: Path | None,
    id: str | None = None,
    vector: str | None = None,
    distance: str | None = None,
) -> Iterator[Migration]:
    """The migration of a store, whose connections are let go at the end."""
    share_heaps()
    by = None if distance is None else check_distance(distance)
    migration = Migration(store, upgrade, id=id, vector=vector, distance=by)
    try:
        yield migration
    finally:
        migration.close()


def show_statements(statements: dict[str, list[str]]) -> None:
    """What each step will say to the store."""
    console = PlainConsole()
    for step, lines in statements.items():
        console.print(Text(step, "bold"))
        for statement in lines:
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
