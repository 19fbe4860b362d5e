"""`crossfade migrate …`: an upgrade carried out on a live store, one command for each step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from crossfade.cli.backfill import backfill
from crossfade.cli.gently import FullSpeed, give_way
from crossfade.cli.interrupt import stopping
from crossfade.cli.migrating import (
    AsJson,
    DryRun,
    IdColumn,
    MetricName,
    StorePlace,
    UpgradeFolder,
    VectorColumn,
    finishing_line,
    opened,
    show_statements,
)
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.cli.verify import verify
from crossfade.journal.journal import Journal
from crossfade.journal.transitions import OVER
from crossfade.migration import Migration
from crossfade.migration.status import Status
from crossfade.stores.contract import ROWS

app = typer.Typer(
    name="migrate",
    help="Carry an upgrade out on a live vector store: start, forward, backfill, verify, finish; "
    "or rollback.",
    no_args_is_help=True,
)


@app.command()
def start(
    store: StorePlace,
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    id: IdColumn = None,
    vector: VectorColumn = None,
    metric: MetricName = None,
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
    with opened(store, upgrade, id, vector, metric) as migration:
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
            "old": f"{seen.old_model or '–'}, {seen.store.dim} dimensions, {seen.store.metric}",
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


@app.command()
def forward(
    store: StorePlace,
    upgrade: UpgradeFolder = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows at a time.")] = ROWS,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Index the shared column at the end.")
    ] = True,
    full_speed: FullSpeed = False,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Lift every row: F(old) into the shared column. Run again, it catches up."""
    check_written(json_file)
    give_way(full_speed)
    with opened(store, upgrade, id, vector) as migration:
        if dry_run:
            found = migration.status()
            record = {"dry_run": True, "rows": found.old, "stage": found.stage}
            if not write_json(record, json_file):
                PlainConsole().print(f"{found.old:,} of {found.rows:,} rows would be lifted")
            return
        with waiting("forward") as progress, stopping() as stop:
            done = migration.forward(progress=progress, stop=stop, size=batch, index=index)
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


app.command()(backfill)


@app.command()
def status(
    store: StorePlace, id: IdColumn = None, vector: VectorColumn = None, json_file: AsJson = None
) -> None:
    """Rows by state, rates, the quality reached by the plan's curve, and the next command."""
    check_written(json_file)
    with opened(store, None, id, vector) as migration:
        found = migration.status()
    if not write_json(found.record(), json_file):
        show_status(found)


app.command()(verify)


@app.command()
def finish(
    store: StorePlace,
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
            _show_end(migration, "finish", json_file, {"unproven": found})
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
        _ended(done, json_file)


@app.command()
def rollback(
    store: StorePlace,
    id: IdColumn = None,
    vector: VectorColumn = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where its journal is lost, or newer vectors go."),
    ] = False,
    dry_run: DryRun = False,
    json_file: AsJson = None,
) -> None:
    """Drop everything the migration added; the old vectors are where they were."""
    check_written(json_file)
    with opened(store, None, id, vector) as migration:
        if dry_run:
            _show_end(migration, "rollback", json_file, {})
            return
        _ended(migration.rollback(force=force), json_file)


def _show_end(
    migration: Migration, how: str, json_file: str | None, more: dict[str, list[str]]
) -> None:
    from crossfade.journal.columns import columns

    statements = migration.store.statements(columns(migration.journal.shared_dim))[how]
    record = {"dry_run": True, "statements": statements} | more
    if not write_json(record, json_file):
        for problem in more.get("unproven", []):
            note(f"would be refused: {problem}")
        show_statements({how: statements})


def _ended(done: Journal | None, json_file: str | None) -> None:
    """A rollback by force may have no journal to speak of."""
    stage = "rolled back" if done is None else done.stage
    vector = None if done is None else done.vector
    space = done.space if done is not None and stage == "finished" else None
    kept = done is not None and done.kept and stage != "finished"
    record = {"dry_run": False, "stage": stage, "vector": vector, "space": space, "kept": kept}
    if not write_json(record, json_file):
        where = "" if vector is None else f": vectors are in {vector!r}"
        if kept:
            where = ": old and new vectors are kept; ask both with `Searcher`, and lift what comes"
        PlainConsole().print(f"{stage}{where}")
        if space == "new":
            note("they are in the new model's own space: insert and ask plain new vectors")
        elif space == "shared" and done is not None:
            note(
                "they are in the shared space, for B does more than turn the new model's: put new "
                f"vectors through B before you insert or ask them (Upgrade.backward, or `crossfade "
                f"export --onnx`; the upgrade is in {done.upgrade_folder})"
            )


def show_status(found: Status) -> None:
    """The counts as a table, then what comes next."""
    console = PlainConsole()
    table = Table(title=f"{found.store}: {found.stage}", title_justify="left")
    for name in ("state", "rows", "share"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for state in ("old", "lifted", "filled"):
        count = getattr(found, state)
        table.add_row(state, f"{count:,}", f"{count / max(found.rows, 1):.1%}")
    console.print(table)
    if found.late:
        console.print(f"{found.late:,} rows came or changed and are not lifted yet")
    if found.unusable:
        console.print(f"{found.unusable:,} rows have no usable old vector")
    if found.target is not None:
        console.print(f"filled {found.share:.1%}, and the plan wants {found.target:.1%}")
    if found.asking is not None and found.stage not in OVER:
        console.print(f"ask: {found.asking}, by the plan", highlight=False)
        if found.asking != "new" and found.alone_from is not None:
            console.print(
                f"new queries alone are as good as today's from {found.alone_from:.0%} on"
            )
    if found.stage in ("finishing", "finished"):
        console.print("rows by state are those of the moment at which `finish` began")
    for step, rate in found.rate.items():
        console.print(f"{step}: {rate:,.0f} rows/s", highlight=False)
    if found.seconds_left is not None:
        console.print(f"about {found.seconds_left:,.0f} s left", highlight=False)
    if found.quality is not None:
        quality = Table(title="quality by the plan's curve, in percent", title_justify="left")
        names = {"old": "old/old", "now": "now", "at_stop": "at the stop", "new": "new/new"}
        quality.add_column("metric")
        for name in names.values():
            quality.add_column(name, justify="right")
        for metric in found.quality["now"]:
            known = [found.quality[key].get(metric) for key in names]
            quality.add_row(metric, *("?" if value is None else f"{value:.1f}" for value in known))
        console.print(quality)
    for event in found.events[-3:]:
        console.print(f"{event['at']}  {event['what']}", highlight=False, markup=False)
    console.print(f"next: {found.next}", highlight=False, markup=False, soft_wrap=True)
