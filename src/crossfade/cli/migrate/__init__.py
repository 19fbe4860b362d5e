"""`crossfade migrate …`: an upgrade carried out on a live store, one command for each step."""

from __future__ import annotations

import typer

from crossfade.cli.migrate.backfill import backfill
from crossfade.cli.migrate.finish import finish
from crossfade.cli.migrate.forward import forward
from crossfade.cli.migrate.rollback import rollback
from crossfade.cli.migrate.start import start
from crossfade.cli.migrate.status import status
from crossfade.cli.migrate.verify import verify
from crossfade.cli.migrate.watch import watch

app = typer.Typer(
    name="migrate",
    help="Carry an upgrade out on a live vector store: start, forward, backfill, verify, finish; "
    "or rollback.",
    no_args_is_help=True,
)
for command in (
    start,
    forward,
    backfill,
    status,
    verify,
    finish,
    rollback,
    watch,
):
    app.command()(command)
