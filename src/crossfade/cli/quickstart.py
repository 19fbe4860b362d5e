"""`crossfade quickstart`: from a store to an answer; without one, a tour on texts of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crossfade.cli.migrate.options import AsJson
from crossfade.cli.models import (
    Concurrency,
    MaxSpend,
    Model,
    NewKey,
    NewModel,
    OldKey,
    OldModel,
    Price,
    Rate,
    Retries,
    Timeout,
    open_models,
)
from crossfade.cli.output import PlainConsole, check_written, note, step_bars, write_json
from crossfade.cli.today import today_option
from crossfade.embedders import EndpointSettings
from crossfade.errors import BadInput
from crossfade.stores.registry import built_in, forms

if TYPE_CHECKING:
    from crossfade.assessment import Answer

WHAT, COST, OUT = "What to sample", "What embedding takes", "Output"


def quickstart(
    store: Annotated[
        str | None,
        typer.Argument(
            help=f"The store: {forms(built_in())}. Without one, a table of two thousand texts that "
            "is made in FOLDER."
        ),
    ] = None,
    embed: Annotated[
        str | None,
        typer.Option(
            help="The new model: module:function, https://host/v1, or a file with ids and vectors."
        ),
    ] = None,
    embed_old: Annotated[
        str | None,
        typer.Option(
            help="The old model: module:function or https://host/v1. Without it new queries alone "
            "are planned for."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where pairs, upgrade, evaluation, plan, report and answer go. Run again with the "
            "same one, it goes on where it was.",
        ),
    ] = Path("quickstart"),
    source: Annotated[
        str | None,
        typer.Option(
            help="The column of texts; need not be named where there is one.", rich_help_panel=WHAT
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(
            help="A column of titles to make lookups of; by default they are the first sentence "
            "of the text.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="A column of classes: rows are judged by it in place of lookups.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows for the fit; 5,000.", rich_help_panel=WHAT)
    ] = None,
    held: Annotated[
        int | None,
        typer.Option(min=1, help="Further rows, to judge on; 2,000.", rich_help_panel=WHAT),
    ] = None,
    lookups: Annotated[
        int | None,
        typer.Option(min=0, help="Of the held rows, to be looked up; 500.", rich_help_panel=WHAT),
    ] = None,
    id: Annotated[str | None, typer.Option(help="The column of ids.", rich_help_panel=WHAT)] = None,
    vector: Annotated[
        str | None, typer.Option(help="The column of old vectors.", rich_help_panel=WHAT)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=WHAT)] = 0,
    cost_per_1k: Annotated[
        float | None,
        typer.Option(
            min=0, help="Of a thousand items; by default the sample's.", rich_help_panel=COST
        ),
    ] = None,
    items_per_second: Annotated[
        float | None,
        typer.Option(min=1e-9, help="By default the sample's.", rich_help_panel=COST),
    ] = None,
    today: Annotated[float | None, today_option(WHAT)] = None,
    model: NewModel = "",
    model_old: OldModel = "",
    key_env: NewKey = None,
    key_env_old: OldKey = None,
    cost_per_1m_tokens: Price = None,
    max_spend: MaxSpend = None,
    requests_per_second: Rate = None,
    concurrency: Concurrency = EndpointSettings.concurrency,
    timeout: Timeout = 60.0,
    retries: Retries = 6,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Begin anew in a folder made of other rows or models.",
            rich_help_panel=OUT,
        ),
    ] = False,
    json_file: AsJson = None,
) -> None:
    """Is an upgrade worth it, and how is it done? Samples a store, fits, evaluates and plans.

    Nothing is written to the store. Exit code 0: upgrade; 1: do not, or it cannot be judged.
    """
    # Here, not at the top: no other command should wait for them.
    from crossfade.assessment import quickstart as assess
    from crossfade.assessment.models import Named
    from crossfade.assessment.parts import Parts
    from crossfade.demo.tour import TOUR, make_tour

    check_written(json_file)
    sizes = {"rows": rows, "held": held, "lookups": lookups}
    given: dict[str, Any] = {name: n for name, n in sizes.items() if n is not None}
    with step_bars() as progress:
        if store is None:
            if embed is not None or embed_old is not None:
                raise BadInput("models without a store", step="name the store first")
            Parts(output, may_hold=(TOUR.table,))
            store = str(make_tour(output, lambda n, total: progress("0/4 a table", n, total)))
            embed, embed_old = TOUR.embed, TOUR.embed_old
            title = title or TOUR.title
            given = TOUR.sizes | given
        elif embed is None:
            raise BadInput("no new model", step="name it with --embed")
        new, old = open_models(
            Model(embed, model, key_env),
            None if embed_old is None else Model(embed_old, model_old, key_env_old),
            EndpointSettings(
                requests_per_second=requests_per_second,
                concurrency=concurrency,
                timeout=timeout,
                retries=retries,
                cost_per_million_tokens=cost_per_1m_tokens,
                max_spend=max_spend,
            ),
        )
        answer = assess(
            store,
            output,
            embed=Named.of(new, embed),
            embed_old=None if old is None else Named.of(old, embed_old),
            source=source,
            title=title,
            labels=labels,
            id=id,
            vector=vector,
            cost_per_1k=cost_per_1k,
            items_per_second=items_per_second,
            today=today,
            seed=seed,
            overwrite=overwrite,
            progress=progress,
            **given,
        )
    for text in answer.notes:
        note(f"note: {text}")
    for text in answer.warnings:
        note(f"warning: {text}")
    if not write_json(answer.record(), json_file):
        _show(answer)
    if not answer.upgrade:
        raise typer.Exit(1)


def _show(answer: Answer) -> None:
    console = PlainConsole()
    console.print(f"{answer.store}: {answer.rows:,} rows, {answer.old_dim} → {answer.new_dim}")
    console.print(_stages(answer))
    word, reason = answer.headline.split(": ", 1)
    console.print(Text.assemble((word, "bold"), f": {reason}"), soft_wrap=True)
    for line in answer.lines():
        console.print(line, soft_wrap=True)
    console.print(f"written: {', '.join(answer.files.values())}", soft_wrap=True)
    if answer.commands:
        console.print(answer.before_commands)
        for command in answer.commands:
            console.print(f"  {command}", soft_wrap=True)


def _stages(answer: Answer) -> Table:
    """Every stage with what it finds, and how far that is from today."""
    table = Table(title="in percent, with 95 % intervals over queries", title_justify="left")
    table.add_column("stage", no_wrap=True)
    table.add_column("asked", no_wrap=True)
    for metric in answer.stages[-1].levels:
        table.add_column(metric, justify="right")
        table.add_column("against today", justify="right")
    table.add_column("measured on", no_wrap=True)
    for stage in answer.stages:
        cells = []
        for level in stage.levels.values():
            cells += [f"{level.quality:.1f}", "" if level.ci95 is None else str(level)]
        name = f"{stage.share:.0%} filled" if stage.name == "filled" else stage.name
        which = "all {:,} rows" if stage.whole_store else "{:,} held rows"
        table.add_row(name, stage.asked, *cells, which.format(stage.gallery))
    return table
