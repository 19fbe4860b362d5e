"""`crossfade migrate watch`: a page that shows a migration as it goes."""

from __future__ import annotations

import webbrowser
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.interrupt import Stopped
from crossfade.cli.migrate.options import IdColumn, StoreAddress, VectorColumn
from crossfade.cli.output import note
from crossfade.journal.opening import open_migrating


def watch(
    store: StoreAddress,
    plan: Annotated[
        Path | None, typer.Option(help="The plan's folder, before `backfill` has named it.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Whom to listen to; by default this machine alone.")
    ] = "127.0.0.1",
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    id: IdColumn = None,
    vector: VectorColumn = None,
) -> None:
    """Serve a page that follows the migration: stage, rows, rate, the plan's curve. It only
    reads."""
    from crossfade.serving.dashboard.server import serve_dashboard
    from crossfade.serving.dashboard.watch import Watch

    found = open_migrating(store, id=id, vector=vector)

    def begun(address: str) -> None:
        note(f"watching {found.name} at {address} (Ctrl-C ends it)")
        if open_page:
            webbrowser.open(address)

    # Whoever ends a server gets what was wanted: that is no failure.
    with closing(found), suppress(Stopped):
        serve_dashboard(Watch(found, plan), host=host, port=port, begun=begun)
