"""`crossfade plan`: what backfilling will buy, and when to stop, before anything is touched."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from crossfade.backfill.gallery import order_gallery
from crossfade.backfill.gallery_file import Gallery
from crossfade.backfill.plan import ORDER, check_plan_target
from crossfade.backfill.planning import METRICS
from crossfade.backfill.planning import plan as make_plan
from crossfade.backfill.simulate import DEFAULT_ORDERS
from crossfade.backfill.start import LIFTED
from crossfade.cli.engine import (
    ClusterAddress,
    EngineChoice,
    EngineOption,
    GpusPerActor,
    NumActors,
    engine_of,
)
from crossfade.cli.output import check_written, note, waiting, write_json
from crossfade.cli.plan_tables import show
from crossfade.cli.planning import chosen_blends, column, numbers, start_of, ways_of
from crossfade.cli.today import today_option
from crossfade.embedders import EndpointSettings, open_embedder
from crossfade.errors import BadInput
from crossfade.files.spilled import read_long
from crossfade.journal import open_migrating
from crossfade.lookups import plan_on_store, read_held
from crossfade.migration.trial import try_out, with_estimate
from crossfade.upgrade import Upgrade

DATA, WHAT, REAL, OUT = "Data", "What to plan", "The real gallery", "Output"
TRIAL = "A trial"


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
    ask: Annotated[
        list[str] | None,
        typer.Option(
            help="Ways of asking to try: new, both, blend; may be repeated. By default all; where "
            "the old model is gone there is new alone.",
            rich_help_panel=WHAT,
        ),
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
        list[str] | None,
        typer.Option(
            metavar="A|A:B",
            help="Blends to try, one for all items or changing along the order; 1 is the paper's "
            "replacement. By default they are searched for.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="V|V:W",
            help="By how much scores of backfilled items are turned down; 1 is not at all.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    lift: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            max=1,
            help="Shares of F(old) in what rows store before they are filled, to try beside F(old) "
            "itself; 0 is not to lift. By default three.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="lifted|old|FILE",
            help="What the gallery holds now: F(old), old vectors that were never lifted, or for "
            "each row of PAIRS one of old, lifted and filled.",
            rich_help_panel=WHAT,
        ),
    ] = LIFTED,
    budget: Annotated[
        float, typer.Option(help="The largest share you can afford.", rich_help_panel=WHAT)
    ] = 1.0,
    target: Annotated[
        float | None,
        typer.Option(help="In percent, in place of new/new.", rich_help_panel=WHAT),
    ] = None,
    today: Annotated[float | None, today_option(WHAT)] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="The store that PAIRS was sampled from: the curves of its lookups have every row "
            "of it as a distractor.",
            rich_help_panel=REAL,
        ),
    ] = None,
    store_id: Annotated[
        str | None, typer.Option(help="Its column of ids.", rich_help_panel=REAL)
    ] = None,
    store_vector: Annotated[
        str | None, typer.Option(help="Its column of old vectors.", rich_help_panel=REAL)
    ] = None,
    items: Annotated[
        int | None, typer.Option(min=1, help="Items of the real gallery.", rich_help_panel=REAL)
    ] = None,
    trial: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Estimate time, money, storage and requests from a short trial on this store, "
            "with --embed: some of its rows are read and embedded, and nothing is written.",
            rich_help_panel=TRIAL,
        ),
    ] = None,
    trial_writes: Annotated[
        bool,
        typer.Option(
            "--trial-writes",
            help="Try writing too: some rows are copied beside the store, migrated from start to "
            "finish, and the copies dropped. A store that cannot be copied has columns added, "
            "written for some rows, and dropped again.",
            rich_help_panel=TRIAL,
        ),
    ] = False,
    embed: Annotated[
        str | None,
        typer.Option(
            help="The new model: module:function, https://host/v1, or a file with ids and vectors.",
            rich_help_panel=TRIAL,
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The store's text column.", rich_help_panel=TRIAL)
    ] = None,
    model: Annotated[str, typer.Option(help="The endpoint's model.", rich_help_panel=TRIAL)] = "",
    key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable with its key.", rich_help_panel=TRIAL),
    ] = None,
    cost_per_1m_tokens: Annotated[float | None, typer.Option(min=0, rich_help_panel=TRIAL)] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Requests at a time, at most.", rich_help_panel=TRIAL),
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
    engine: EngineChoice = EngineOption.local,
    address: ClusterAddress = None,
    num_actors: NumActors = None,
    gpus_per_actor: GpusPerActor = 0.0,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=WHAT)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.", rich_help_panel=WHAT)] = "cpu",
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
    if store is None and trial is None and (store_id is not None or store_vector is not None):
        raise BadInput("--store-id and --store-vector without a store", step="add --store STORE")
    if (trial is None) != (embed is None):
        raise BadInput("a trial is of a store and a model", step="give both --trial and --embed")
    if engine is EngineOption.ray and gallery is None and trial is None:
        raise BadInput(
            "Ray orders a gallery or tries out a store, and neither was given",
            step="add --gallery FILE, or --trial STORE",
        )
    if trial_writes and trial is None:
        raise BadInput("nothing to write to", step="name the store: --trial STORE")
    blends = chosen_blends(blend, volume)
    fitted = Upgrade.load(upgrade)
    tried, known = None, 0
    if trial is not None and embed is not None:
        settings = EndpointSettings(
            model=model,
            key_env=key_env,
            concurrency=concurrency,
            cost_per_million_tokens=cost_per_1m_tokens,
        )
        with (
            closing(open_migrating(trial, id=store_id, vector=store_vector)) as opened,
            engine_of(engine, address, num_actors, gpus_per_actor) as workers,
            nullcontext(open_embedder(embed, endpoint=settings))
            if workers is None
            else workers.embedder(embed, settings) as embedder,
        ):
            known = opened.describe().rows
            tried = try_out(
                opened,
                fitted,
                embedder,
                source=source,
                write=trial_writes,
                engine=workers,
                seed=seed,
            )
        cost_per_1k = tried.cost_per_1k if cost_per_1k is None else cost_per_1k
        if items_per_second is None:
            items_per_second = tried.items_per_second
        items = items or known
    held = read_held(pairs, old=old, new=new, labels=labels, queries=queries, qrels=qrels)
    with nullcontext() if gallery_ids is None else read_long(gallery_ids, output) as ids:
        real = None
        if gallery is not None:
            real = Gallery.open(
                fitted,
                gallery,
                ids=ids,
                labels=None if gallery_labels is None else column(gallery_labels),
                priority=None if gallery_priority is None else numbers(gallery_priority),
            )
        with waiting("simulating") as advance:
            made = make_plan(
                fitted,
                held,
                optimize=optimize or METRICS,
                ask=ways_of(ask),
                orders=order,
                blends=blends,
                lifts=lift,
                start=start_of(start),
                budget=budget,
                target=target,
                today=today,
                priority=None if priority is None else numbers(priority),
                gallery=real,
                items=items,
                cost_per_1k=cost_per_1k,
                items_per_second=items_per_second,
                seed=seed,
                device=device,
                progress=advance,
            )
        if store is not None:
            with (
                closing(open_migrating(store, id=store_id, vector=store_vector)) as opened,
                waiting(opened.name) as advance,
            ):
                made = plan_on_store(
                    fitted,
                    held,
                    opened,
                    made,
                    target=target,
                    today=today,
                    seed=seed,
                    progress=advance,
                )
        if tried is not None:
            made = with_estimate(made, tried, items or known)
        with (
            engine_of(engine, address, num_actors, gpus_per_actor) as workers,
            waiting("ordering") as advance,
        ):
            made.save(
                output,
                overwrite=overwrite,
                more=None
                if real is None
                else lambda folder: order_gallery(
                    made, fitted, real, folder / ORDER, engine=workers, progress=advance
                ),
            )
        if real is not None:
            note(f"{output / ORDER}: {real.source.rows:,} ids, most urgent first")
        for text in made.record.warnings:
            note(f"warning: {text}")
        if not write_json(made.record.model_dump(), json_file):
            show(made.record, output)
