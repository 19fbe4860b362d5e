"""`crossfade migrate verify`: counts, checksums, a sample recomputed, quality through the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from crossfade.cli.migrate.options import (
    AsJson,
    IdColumn,
    StoreAddress,
    UpgradeFolder,
    VectorColumn,
    opened,
)
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.errors import BadInput
from crossfade.migration import Queries

_SIGNS = {
    True: Text("ok", "green"),
    False: Text("failed", "bold red"),
    None: Text("left out", "yellow"),
}


def verify(
    store: StoreAddress,
    embed: Annotated[
        str | None, typer.Option(help="Embed some backfilled rows again, with this.")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Pairs of queries (old, new, labels) to search the store with."),
    ] = None,
    query_labels: Annotated[
        str | None, typer.Option(help="Their labels, if not in that file: FILE or FILE:NAME.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="The store's column that holds what a query's label says."),
    ] = None,
    upgrade: UpgradeFolder = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    json_file: AsJson = None,
) -> None:
    """Check every row; exit 1 if something is not as it should be."""
    check_written(json_file)
    with opened(store, upgrade, id, vector) as migration:
        asked = None
        if queries is not None:
            if labels is None:
                raise BadInput(
                    "--queries needs the store's column of labels", step="add --labels COLUMN"
                )
            asked = Queries.open(queries, labels, labels=query_labels)
        with waiting("verify") as progress:
            found = migration.verify(
                embed=embed,
                queries=asked,
                progress=progress,
            )
        if not write_json(found.record(), json_file):
            table = Table(title=migration.store.name, title_justify="left")
            for name in ("check", "", "what was found"):
                table.add_column(name)
            for check in found.checks:
                sign = _SIGNS[check.passed]
                table.add_row(check.name, sign, check.detail)
            console = PlainConsole()
            console.print(table)
            if found.quality is not None and "predicted" in found.quality:
                predicted = found.quality["predicted"]["now"]
                console.print(
                    "the plan predicted "
                    + ", ".join(f"{metric} {value:.1f}" for metric, value in predicted.items())
                )
        if found.passed and not found.proves:
            note(f"not kept as proof, verify again before `finish`: {found.unkept}")
    if not found.passed:
        raise typer.Exit(1)
