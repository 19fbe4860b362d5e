"""`crossfade migrate forward`: F(old) into the shared column of every row."""

from __future__ import annotations

from typing import Annotated

import typer

from crossfade.cli.engine import (
    ClusterAddress,
    EngineChoice,
    EngineOption,
    NumActors,
    engine_of,
)
from crossfade.cli.interrupt import stopping
from crossfade.cli.migrate.options import (
    AsJson,
    DryRun,
    IdColumn,
    StoreAddress,
    UpgradeFolder,
    VectorColumn,
    finishing_line,
    opened,
)
from crossfade.cli.migrate.priority import FullSpeed, give_way
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.stores.contract import ROWS


def forward(
    store: StoreAddress,
    upgrade: UpgradeFolder = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows at a time.")] = ROWS,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Index the shared column at the end.")
    ] = True,
    full_speed: FullSpeed = False,
    engine: EngineChoice = EngineOption.local,
    address: ClusterAddress = None,
    num_actors: NumActors = None,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Lift every row: F(old) into the shared column. Run again, it catches up."""
    check_written(json_file)
    give_way(full_speed)
    with (
        engine_of(engine, address, num_actors) as workers,
        opened(store, upgrade, id, vector) as migration,
    ):
        if dry_run:
            found = migration.status()
            record = {"dry_run": True, "rows": found.old, "stage": found.stage}
            if not write_json(record, json_file):
                PlainConsole().print(f"{found.old:,} of {found.rows:,} rows would be lifted")
            return
        with waiting("forward") as progress, stopping() as stop:
            done = migration.forward(
                progress=progress, stop=stop, size=batch, index=index, engine=workers
            )
        if done.unusable:
            named = ", ".join(map(repr, done.first_unusable))
            note(
                f"warning: {done.unusable:,} rows have no usable old vector and stay as they are: "
                f"{named}"
            )
        after = migration.journal
        record = {
            "dry_run": False,
            "rows": done.looked_at,
            "written": done.written,
            "unusable": done.unusable,
            "seconds": done.seconds,
            "rows_per_second": done.rate,
            "stopped": done.stopped,
            "stage": after.stage,
        }
        if not write_json(record, json_file):
            how = "stopped" if done.stopped else "done"
            PlainConsole().print(
                f"{how}: {done.written:,} rows lifted, {done.looked_at:,} looked at, "
                f"{done.rate:,.0f} rows/s"
            )
            finishing_line(False, None, migration.status().next)
        stop.end(done.stopped)
