"""`crossfade migrate rollback`: everything the migration added is dropped."""

from __future__ import annotations

from typing import Annotated

import typer

from crossfade.cli.migrate.ending import show_end, show_statements_of
from crossfade.cli.migrate.options import (
    AsJson,
    DryRun,
    IdColumn,
    StoreAddress,
    VectorColumn,
    opened,
)
from crossfade.cli.output import check_written


def rollback(
    store: StoreAddress,
    id: IdColumn = None,
    vector: VectorColumn = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also where its journal is lost, or newer vectors beside old ones go."
        ),
    ] = False,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Drop everything the migration added; the old vectors are where they were."""
    check_written(json_file)
    with opened(store, None, id, vector) as migration:
        if dry_run:
            show_statements_of(migration, "rollback", json_file, {})
            return
        show_end(migration.rollback(force=force), json_file)
