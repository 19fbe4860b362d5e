"""`crossfade migrate start`: check store and upgrade, say what will happen, begin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from crossfade.cli.migrate.options import (
    AsJson,
    DistanceName,
    DryRun,
    IdColumn,
    StoreAddress,
    VectorColumn,
    finishing_line,
    opened,
    show_statements,
)
from crossfade.cli.output import PlainConsole, check_written, note, write_json


def start(
    store: StoreAddress,
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    id: IdColumn = None,
    vector: VectorColumn = None,
    distance: DistanceName = None,
    source: Annotated[
        str | None, typer.Option(help="The column with the text that is embedded.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="What `crossfade evaluate --json` wrote.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="The folder of `crossfade plan`.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Without a verdict, or against it.")
    ] = False,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Check store and upgrade, say what will happen, and begin: new queries work from here on."""
    check_written(json_file)
    with opened(store, upgrade, id, vector, distance) as migration:
        asked: dict[str, Any] = {
            "source": source,
            "evaluation": evaluation,
            "plan": plan,
            "force": force,
        }
        seen = migration.outlook(**asked) if dry_run else migration.start(**asked)
        for warning in seen.warnings:
            note(f"warning: {warning}")
        if write_json({"dry_run": dry_run} | seen.record(), json_file):
            return
        table = Table(title=f"{seen.store.kind}: {seen.store.name}", title_justify="left")
        table.add_column("what")
        table.add_column("", justify="right")
        facts = {
            "rows": f"{seen.store.rows:,}",
            "old": f"{seen.old_model or '–'}, {seen.store.dim} dimensions, {seen.store.distance}",
            "new": f"{seen.new_model or '–'}, {seen.shared_dim} dimensions in the shared space",
            "more storage": f"{seen.storage_bytes / 1e6:,.0f} MB",
            "forward takes about": f"{seen.forward_seconds:,.0f} s",
        }
        if seen.backfill is not None:
            facts["then backfill"] = (
                f"{seen.backfill['rows']:,} rows ({seen.backfill['share']:.0%}), "
                f"order {seen.backfill['order']}"
            )
            if seen.backfill["predicted_cost"] is not None:
                facts["at a cost of"] = f"{seen.backfill['predicted_cost']:,.2f}"
        for name, value in facts.items():
            table.add_row(name, value)
        PlainConsole().print(table)
        show_statements(seen.statements)
        begun = None if dry_run else migration.status().next
        finishing_line(dry_run, "started", begun or "")
