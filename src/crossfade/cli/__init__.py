"""The command line: one file per command, each thin: parse, call, print.

Results go to stdout, progress and notes to stderr. Exit codes: 0 good, 1 a verdict failed, 2 bad
usage or bad input, 3 a store or a service failed.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from crossfade._version import __version__
from crossfade.cli.apply import apply
from crossfade.cli.demo import demo
from crossfade.cli.evaluate import evaluate
from crossfade.cli.export import export
from crossfade.cli.fit import fit
from crossfade.cli.inspect import inspect
from crossfade.cli.migrate import app as migrate
from crossfade.cli.plan import plan
from crossfade.errors import CrossfadeError

app = typer.Typer(
    name="crossfade",
    help="Upgrade the embedding model of a live retrieval system without re-embedding it first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, evaluate, plan, apply, export, inspect):
    app.command()(command)
app.add_typer(migrate)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"crossfade {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Upgrade the embedding model of a live retrieval system without re-embedding it first."""


def main() -> None:
    """The entry point: errors of ours become one line on stderr and their exit code."""
    try:
        app()
    except CrossfadeError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]error[/] {_escape(str(error))}", highlight=False
        )
        sys.exit(error.exit_code)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
