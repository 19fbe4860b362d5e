"""`crossfade plan`: what backfilling will buy, and when to stop, before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from crossfade.backfill.folder import Plan, check_plan_target, describe, load_plan, save_plan
from crossfade.backfill.gallery import order_gallery
from crossfade.backfill.plan import Costs, choose
from crossfade.backfill.simulate import BLENDS, DEFAULT_ORDERS, simulate
from crossfade.cli.held import Named, open_held, read_list
from crossfade.cli.output import check_written, note, waiting, write_json
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.solvers.split import validation_rows
from crossfade.upgrade import Upgrade

DATA, WHAT, REAL, OUT = "Data", "What to plan", "The real gallery", "Output"


def plan(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    pairs: Annotated[
        Path | None, typer.Argument(help="One file with old, new and labels or qrels.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The plan folder to write.", rich_help_panel=OUT)
    ] = Path("plan"),
    old: Annotated[
        str | None, typer.Option(help="FILE or FILE:NAME.", rich_help_panel=DATA)
    ] = None,
    new: Annotated[
        str | None, typer.Option(help="FILE or FILE:NAME.", rich_help_panel=DATA)
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="FILE or FILE:NAME.", rich_help_panel=DATA)
    ] = None,
    qrels: Annotated[
        str | None, typer.Option(help="Judgements (query, item[, grade]).", rich_help_panel=DATA)
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Queries that are not gallery rows.", rich_help_panel=DATA)
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="A number for each row, for the order of that name.")
    ] = None,
    optimize: Annotated[
        list[str] | None,
        typer.Option(help="By default cmc@1 and mAP; may be repeated.", rich_help_panel=WHAT),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Orders to try: {', '.join(DEFAULT_ORDERS)}, priority; two joined by '+'. "
            "By default all.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    blend: Annotated[
        list[float] | None,
        typer.Option(help="Blends to try; 1 is the paper's replacement.", rich_help_panel=WHAT),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="The largest share you can afford.", rich_help_panel=WHAT)
    ] = 1.0,
    target: Annotated[
        float | None,
        typer.Option(help="In percent, in place of new/new.", rich_help_panel=WHAT),
    ] = None,
    items: Annotated[
        int | None, typer.Option(min=1, help="Items of the real gallery.", rich_help_panel=REAL)
    ] = None,
    cost_per_1k: Annotated[
        float | None, typer.Option(min=0, help="Of re-embedding.", rich_help_panel=REAL)
    ] = None,
    items_per_second: Annotated[
        float | None, typer.Option(min=1e-9, help="Of re-embedding.", rich_help_panel=REAL)
    ] = None,
    gallery: Annotated[
        str | None,
        typer.Option(
            help="Old vectors to order, FILE or FILE:NAME; writes order.parquet.",
            rich_help_panel=REAL,
        ),
    ] = None,
    gallery_ids: Annotated[str | None, typer.Option(rich_help_panel=REAL)] = None,
    gallery_labels: Annotated[str | None, typer.Option(rich_help_panel=REAL)] = None,
    gallery_priority: Annotated[str | None, typer.Option(rich_help_panel=REAL)] = None,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=WHAT)] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", rich_help_panel=OUT)] = False,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="'-' is stdout.", rich_help_panel=OUT),
    ] = None,
) -> None:
    """Simulate every order on held-out pairs; name the best, where to stop and what it costs."""
    check_written(json_file)
    check_plan_target(output, overwrite=overwrite)
    if not 0 <= budget <= 1:
        raise BadInput(f"a budget of {budget:g}", step="use a share from 0 to 1")
    fitted = Upgrade.load(upgrade)
    held = open_held(
        Named(pairs, old, new, labels), Named(queries), qrels, use_labels=True, drop=False
    )
    held, notes = unseen(fitted, held)
    chosen = list(dict.fromkeys(optimize or ["cmc@1", "mAP"]))
    tried = list(order or [*DEFAULT_ORDERS, *(["priority"] if priority else [])])
    with waiting("simulating") as advance:
        simulation = simulate(
            fitted,
            held,
            orders=tried,
            blends=blend or BLENDS,
            metrics=chosen,
            priority=None if priority is None else numbers(priority),
            seed=seed,
            progress=advance,
        )
    choice = choose(simulation, chosen, budget=budget, target=target, seed=seed)
    total = items or held.gallery
    made = describe(
        fitted,
        simulation,
        choice,
        Costs(total, cost_per_1k, items_per_second),
        data=held.name,
        gallery=held.gallery,
        optimize=chosen,
        budget=budget,
        warnings=notes,
    )
    save_plan(output, made, simulation, choice, overwrite=overwrite)
    if gallery is not None:
        with waiting("ordering") as advance:
            ordered = order_gallery(
                load_plan(output, fitted),
                fitted,
                gallery,
                output / "order.parquet",
                ids=None if gallery_ids is None else read_list(gallery_ids),
                labels=None if gallery_labels is None else codes(gallery_labels),
                priority=None if gallery_priority is None else numbers(gallery_priority),
                progress=advance,
            )
        note(f"{output / 'order.parquet'}: {ordered:,} ids, most urgent first")
    for text in notes:
        note(f"warning: {text}")
    if not write_json(made.model_dump(), json_file):
        show(made, output)


def unseen(upgrade: Upgrade, held: Held) -> tuple[Held, list[str]]:
    """Rows the upgrade was not fitted on: all of them, or the validation split of its own pairs."""
    known = upgrade.seen(held.gallery_new)
    if not known.overlap:
        return held, []
    fit = upgrade.config_.fit
    if fit["rows"] != held.gallery or held.own is None or held.query_classes is None:
        raise BadInput(
            f"{known.share:.0%} of these pairs were fitted on, and a plan made on them would "
            "promise too much",
            where=held.name,
            step="give pairs the upgrade has not seen, or the very file it was fitted on",
        )
    settings = upgrade.config_.settings
    _, labels = np.unique(held.query_classes, return_inverse=True)
    keep = np.flatnonzero(
        validation_rows(held.gallery, labels, settings["validation"], settings["seed"])
    )
    pairs = Pairs.from_arrays(
        held.gallery_old[keep], held.gallery_new[keep], labels[keep], name=held.name
    )
    text = (
        f"the upgrade was fitted on these pairs: simulated on its {len(keep)} validation rows, "
        "which have chosen it; fresh pairs would be surer"
    )
    return Held.of(pairs), [text]


def numbers(place: str) -> Any:
    """One number per row."""
    values = read_list(place)
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise BadInput("holds something that is not a number", where=place)
    return values.astype(np.float64)


def codes(place: str) -> Any:
    """Classes as whole numbers from 0."""
    return np.unique(read_list(place), return_inverse=True)[1].astype(np.int64)


def show(made: Plan, output: Path) -> None:
    """The choice, the candidates it was chosen from, and what it costs."""
    console = Console()
    table = Table(title="area under the curve, in percent", title_justify="left")
    for name in ("order", "blend"):
        table.add_column(name)
    for metric in made.optimize:
        table.add_column(metric, justify="right")
        table.add_column(f"full {metric}", justify="right")
    for candidate in made.candidates:
        best = (candidate["order"], candidate["blend"]) == (made.order, made.blend)
        cells = [f"{candidate[k][m]:.2f}" for m in made.optimize for k in ("area", "full")]
        row = (candidate["order"], f"{candidate['blend']:g}", *cells)
        table.add_row(*row, style="bold green" if best else None)
    console.print(table)
    quality = Table(title="quality of the choice, in percent", title_justify="left")
    quality.add_column("metric")
    for name in next(iter(made.quality.values())):
        quality.add_column(name, justify="right")
    for metric, values in made.quality.items():
        quality.add_row(metric, *(f"{v:.1f}" for v in values.values()))
    console.print(quality)
    cost = Table(title="items, cost and time", title_justify="left")
    for name in ("to", "items", "cost", "seconds"):
        cost.add_column(name, justify="left" if name == "to" else "right")
    for name, takes in made.costs.items():
        cells = ["–" if v is None else f"{v:,.0f}" for v in takes.values()]
        cost.add_row(name, *cells)
    console.print(cost)
    for metric, share in made.reach.items():
        if share is None:
            console.print(f"new/new is not reached in {metric}", highlight=False)
    console.print(f"[bold]{made.recommendation}[/]: {made.reason}", highlight=False)
    console.print(f"written: {output}", highlight=False)
