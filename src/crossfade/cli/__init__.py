"""The command line: one file per command, each thin: parse, call, print.

Results go to stdout, progress and notes to stderr. Exit codes: 0 good, 1 a verdict failed, 2 bad
usage or bad input, 3 a store or a service failed, 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.rich_utils import rich_format_error

from crossfade._version import __version__
from crossfade.cli.apply import apply
from crossfade.cli.demo import demo
from crossfade.cli.evaluate import evaluate
from crossfade.cli.export import export
from crossfade.cli.fit import fit
from crossfade.cli.inspect import inspect
from crossfade.cli.interrupt import Stopped, ending_at_once
from crossfade.cli.migrate import app as migrate
from crossfade.cli.output import note, say
from crossfade.cli.pairs import pairs
from crossfade.cli.plan import plan
from crossfade.cli.quickstart import quickstart
from crossfade.cli.report import report
from crossfade.cli.serve import serve
from crossfade.errors import BadInput, CrossfadeError
from crossfade.redaction import without_password

app = typer.Typer(
    name="crossfade",
    help="Upgrade the embedding model of a live retrieval system without re-embedding it first.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    demo,
    quickstart,
    pairs,
    fit,
    evaluate,
    plan,
    report,
    apply,
    serve,
    export,
    inspect,
):
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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Each step as it is logged, on stderr.")
    ] = False,
) -> None:
    """Upgrade the embedding model of a live retrieval system without re-embedding it first."""
    if verbose:
        log = logging.getLogger("crossfade")
        log.addHandler(_Notes())
        log.setLevel(logging.INFO)


class _Notes(logging.Handler):
    """Log records as notes on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"{record.levelname.lower()} {record.name}: {record.getMessage()}")


def main() -> None:
    """The entry point: errors of ours become one line on stderr and their exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A path may hold what no encoding can write, and not every terminal can write an arrow.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with ending_at_once():
            sys.exit(app(standalone_mode=False))
    except CrossfadeError as error:
        say("error", str(error), "bold red")
        sys.exit(error.exit_code)
    except typer.Abort:
        say("aborted", "nothing was done", "bold red")
        sys.exit(1)
    except Stopped as stopped:
        say("stopped:", "not done → run the same command again", "bold yellow")
        sys.exit(stopped.exit_code)
    except OSError as error:
        # What the system refuses needs no trace: a folder that may not be read, a name too long.
        if error.errno is None:
            raise
        where = without_password(f"{os.fsdecode(error.filename)}: " if error.filename else "")
        say("error", f"{where}{error.strerror} → check the path and its permissions", "bold red")
        sys.exit(BadInput.exit_code)
    except MemoryError as error:
        say("error", f"there is not enough memory ({error}) → give less at a time", "bold red")
        sys.exit(BadInput.exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # Bad usage. It is told as typer tells it, which repeats what was typed.
        wrong: Any = error
        wrong.message = without_password(wrong.message)
        rich_format_error(wrong)
        sys.exit(wrong.exit_code)
