"""`crossfade migrate backfill`: new vectors, in the plan's order, until it no longer pays."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from crossfade.cli.engine import (
    ClusterAddress,
    EngineChoice,
    EngineOption,
    GpusPerActor,
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
from crossfade.cli.migrate.priority import SHARE, FullSpeed, give_way
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.embedders import EndpointSettings
from crossfade.migration.preparation import BATCH

WHAT, ENDPOINT, LIMITS = "What to fill", "An HTTP endpoint", "When to stop"
TOGETHER = "Several at a time"


def backfill(
    store: StoreAddress,
    embed: Annotated[
        str,
        typer.Option(
            help="Where new vectors come from: module:function, https://host/v1, or a file with "
            "ids and vectors.",
            rich_help_panel=WHAT,
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(help="The folder of `crossfade plan`.", rich_help_panel=WHAT),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(
            help="A file with ids and new vectors you have already, such as the pairs': filled "
            "first, at no cost.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="The text column, if not named at start.", rich_help_panel=WHAT),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="A column of classes, for orders that use them.", rich_help_panel=WHAT),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(help="A column of numbers, for that order.", rich_help_panel=WHAT),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Fill to this share, not the plan's.", rich_help_panel=LIMITS),
    ] = None,
    items: Annotated[
        int | None, typer.Option(min=1, help="At most so many now.", rich_help_panel=LIMITS)
    ] = None,
    max_spend: Annotated[
        float | None,
        typer.Option(min=0, help="Over all runs, by --cost-per-1m-tokens.", rich_help_panel=LIMITS),
    ] = None,
    cost_per_1m_tokens: Annotated[float | None, typer.Option(min=0, rich_help_panel=LIMITS)] = None,
    model: Annotated[
        str, typer.Option(help="The endpoint's model.", rich_help_panel=ENDPOINT)
    ] = "",
    key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable with its key.", rich_help_panel=ENDPOINT),
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=1e-6, rich_help_panel=ENDPOINT)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Requests at a time, at most: fewer if it says that it is too many. Without it, "
            "as many as it answers faster for.",
            rich_help_panel=ENDPOINT,
        ),
    ] = EndpointSettings.concurrency,
    timeout: Annotated[float, typer.Option(min=0.1, rich_help_panel=ENDPOINT)] = 60.0,
    retries: Annotated[int, typer.Option(min=0, rich_help_panel=ENDPOINT)] = 6,
    batch: Annotated[int, typer.Option(min=1, help="Rows at a time.")] = BATCH,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="Fill it together with other processes, on any machine, that say so too "
            "(pgvector, Qdrant).",
            rich_help_panel=TOGETHER,
        ),
    ] = False,
    worker: Annotated[
        str | None,
        typer.Option(
            help="What this one is called in `status`; by default its machine and process.",
            rich_help_panel=TOGETHER,
        ),
    ] = None,
    upgrade: UpgradeFolder = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    full_speed: FullSpeed = False,
    engine: EngineChoice = EngineOption.local,
    address: ClusterAddress = None,
    num_actors: NumActors = None,
    gpus_per_actor: GpusPerActor = 0.0,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Re-embed in the plan's order, write B(new) blended with F(old), stop where it says."""
    check_written(json_file)
    give_way(full_speed)
    with (
        engine_of(engine, address, num_actors, gpus_per_actor) as workers,
        opened(store, upgrade, id, vector) as migration,
    ):
        settings = EndpointSettings(
            model=model,
            key_env=key_env,
            requests_per_second=requests_per_second,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            cost_per_million_tokens=cost_per_1m_tokens,
            max_spend=max_spend,
        )
        wanted: dict[str, Any] = {
            "plan": plan,
            "source": source,
            "share": share,
            "labels": labels,
            "priority": priority,
            "endpoint": settings,
        }
        if dry_run:
            outlook = migration.backfill_outlook(embed, **wanted)
            for warning in outlook["warnings"]:
                note(f"warning: {warning}")
            if not write_json({"dry_run": True} | outlook, json_file):
                console = PlainConsole()
                for name, value in outlook.items():
                    if name != "warnings":
                        console.print(f"{name.replace('_', ' ')}: {value}")
            return
        with waiting("backfill") as progress, stopping() as stop:
            done = migration.backfill(
                embed,
                **wanted,
                items=items,
                batch=batch,
                processors=1.0 if full_speed else SHARE,
                known=known,
                join=join,
                worker=worker,
                progress=progress,
                stop=stop,
                engine=workers,
            )
        after = migration.journal
        record: dict[str, Any] = {"dry_run": False, "stage": after.stage, "share": done.share}
        record |= asdict(done) | {
            "spent": migration.status().spent,
            "warnings": migration.backfill_notes(),
        }
        for warning in record["warnings"]:
            note(f"warning: {warning}")
        if done.left:
            note(f"warning: {done.left:,} rows changed faster than they could be written")
        if done.without_vector:
            note(f"warning: {done.without_vector:,} rows have no usable vector in {embed}")
        if not write_json(record, json_file):
            free = f", {done.at_no_cost:,} of them at no cost" if done.at_no_cost else ""
            PlainConsole().print(
                f"{'stopped: ' if done.stopped else ''}{done.written:,} rows backfilled{free}; "
                f"{done.filled:,} of {done.rows:,} are filled ({done.share:.1%}); "
                f"ended by {done.why}"
            )
            finishing_line(False, None, migration.status().next)
        stop.end(done.stopped)
