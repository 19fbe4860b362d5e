"""`crossfade pairs`: rows of a live store as pairs, and lookups made of its own text."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.migrate.options import AsJson, StoreAddress
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
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.embedders import EndpointSettings
from crossfade.journal import open_migrating
from crossfade.lookups import sample_pairs
from crossfade.lookups.sample import HELD_ROWS, LOOKUPS, ROWS, Sampled, Sampling

WHAT, OUT = "What to sample", "Output"


def pairs(
    store: StoreAddress,
    embed: Annotated[
        str,
        typer.Option(
            help="The new model: module:function, https://host/v1, or a file with ids and vectors."
        ),
    ],
    embed_old: Annotated[
        str | None,
        typer.Option(
            help="The old model, for lookups and queries: module:function or https://host/v1. "
            "Without it today's search is not measured: its level may be given as --today."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The .npz or .safetensors file to write.")
    ] = Path("pairs.npz"),
    source: Annotated[
        str | None, typer.Option(help="The column of texts.", rich_help_panel=WHAT)
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(
            help="A column of titles to make lookups of; by default they are the first sentence "
            "of the text.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Rows for the fit.", rich_help_panel=WHAT)
    ] = ROWS,
    held: Annotated[
        int,
        typer.Option(
            min=1, help="Further rows, for evaluate and plan alone.", rich_help_panel=WHAT
        ),
    ] = HELD_ROWS,
    lookups: Annotated[
        int,
        typer.Option(min=0, help="Of the held rows, to be looked up.", rich_help_panel=WHAT),
    ] = LOOKUPS,
    sampling: Annotated[
        Sampling,
        typer.Option(
            help="How rows for the fit are chosen: at random, or to cover the store, each the one "
            "farthest from those before it. Held rows are always random.",
            rich_help_panel=WHAT,
        ),
    ] = "random",
    queries: Annotated[
        str | None,
        typer.Option(
            help="Logged queries for the fit: one text per line, FILE.parquet:NAME or "
            "FILE.csv:NAME; or a .parquet, .npz or .safetensors file of their stored vectors, as "
            "'old' and 'new', or as 'old' beside texts, which --embed embeds (FILE:NAME).",
            rich_help_panel=WHAT,
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="A column of classes.", rich_help_panel=WHAT)
    ] = None,
    id: Annotated[str | None, typer.Option(help="The column of ids.", rich_help_panel=WHAT)] = None,
    vector: Annotated[
        str | None, typer.Option(help="The column of old vectors.", rich_help_panel=WHAT)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=WHAT)] = 0,
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
    overwrite: Annotated[bool, typer.Option("--overwrite", rich_help_panel=OUT)] = False,
    json_file: AsJson = None,
) -> None:
    """Sample a store, embed it with the new model, and make lookups: one file, ready to fit."""
    check_written(json_file)
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
    with (
        closing(open_migrating(store, id=id, vector=vector)) as opened,
        waiting(opened.name) as advance,
    ):
        made = sample_pairs(
            opened,
            output,
            embed=new,
            embed_old=old,
            source=source,
            title=title,
            labels=labels,
            queries=queries,
            rows=rows,
            held=held,
            lookups=lookups,
            sampling=sampling,
            seed=seed,
            overwrite=overwrite,
            progress=lambda _, done, total: advance(done, total),
        )
    for text in made.warnings:
        note(f"warning: {text}")
    if not write_json(asdict(made), json_file):
        _show(made)


def _show(made: Sampled) -> None:
    console = PlainConsole()
    logged = f" and {made.logged_queries:,} logged queries" if made.logged_queries else ""
    console.print(
        f"written: {made.path}: {made.rows:,} pairs{logged} ({made.old_dim} → {made.new_dim}), "
        f"{made.held:,} rows held out of the fit, {made.lookups:,} lookups of them",
        soft_wrap=True,
    )
    if made.left_out:
        said = ", ".join(f"{count:,} {why}" for why, count in made.left_out.items())
        console.print(f"left out: {said}", soft_wrap=True)
    if made.spent:
        console.print(f"spent: {made.spent:.4g}")
    console.print(f"next: crossfade fit {made.path} -o upgrade", soft_wrap=True)
    console.print(
        f"      crossfade evaluate upgrade {made.path} --store {made.store}", soft_wrap=True
    )
