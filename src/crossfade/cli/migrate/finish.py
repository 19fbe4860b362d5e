"""`crossfade migrate finish`: the shared column becomes the only one."""

from __future__ import annotations

from typing import Annotated

import typer

from crossfade.cli.migrate.ending import show_end, show_statements_of
from crossfade.cli.migrate.options import (
    AsJson,
    DryRun,
    IdColumn,
    StoreAddress,
    UpgradeFolder,
    VectorColumn,
    opened,
)
from crossfade.cli.output import check_written, note, waiting


def finish(
    store: StoreAddress,
    upgrade: UpgradeFolder = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Without proof that all is as it should be.")
    ] = False,
    keep_old: Annotated[
        bool,
        typer.Option("--keep-old", help="Drop nothing: both columns stay, to be asked together."),
    ] = False,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Make the shared column the only one, once a `verify` has passed. The old vectors are gone
    after this, unless they are kept."""
    check_written(json_file)
    with opened(store, upgrade, id, vector) as migration:
        if dry_run:
            found = migration.unproven(keep_old=keep_old)
            show_statements_of(migration, "finish", json_file, {"unproven": found})
            return

        def confirm(problems: list[str]) -> None:
            for problem in problems:
                note(f"warning: forced although {problem}")
            if not yes and not keep_old:
                typer.confirm("The old vectors will be gone for good. Go on?", abort=True, err=True)

        with waiting("finish") as progress:
            done = migration.finish(
                force=force, keep_old=keep_old, confirm=confirm, progress=progress
            )
        show_end(done, json_file)
