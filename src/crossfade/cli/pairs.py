"""`crossfade pairs`: rows of a live store as pairs, and lookups made of its own text."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.migrating import AsJson, StorePlace
from crossfade.cli.output import PlainConsole, check_written, note, waiting, write_json
from crossfade.embedders import Embedder, EndpointSettings, open_embedder
from crossfade.journal import open_migrating
from crossfade.lookups import sample_pairs
from crossfade.lookups.sample import HELD_ROWS, LOOKUPS, ROWS, Sampled

WHAT, ENDPOINT, OUT = "What to sample", "HTTP endpoints", "Output"


def pairs(
    store: StorePlace,
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
            "Without it nothing can be compared with today's search."
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
    queries: Annotated[
        str | None,
        typer.Option(
            help="Logged queries for the fit: one text per line, FILE.parquet:NAME or "
            "FILE.csv:NAME.",
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
    model: Annotated[
        str, typer.Option(help="The new endpoint's model.", rich_help_panel=ENDPOINT)
    ] = "",
    model_old: Annotated[
        str, typer.Option(help="The old endpoint's model.", rich_help_panel=ENDPOINT)
    ] = "",
    key_env: Annotated[
        str | None,
        typer.Option(
            help="The environment variable with the new one's key.", rich_help_panel=ENDPOINT
        ),
    ] = None,
    key_env_old: Annotated[
        str | None, typer.Option(help="With the old one's key.", rich_help_panel=ENDPOINT)
    ] = None,
    cost_per_1m_tokens: Annotated[
        float | None, typer.Option(min=0, rich_help_panel=ENDPOINT)
    ] = None,
    max_spend: Annotated[
        float | None,
        typer.Option(
            min=0, help="On each endpoint, by --cost-per-1m-tokens.", rich_help_panel=ENDPOINT
        ),
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=1e-6, rich_help_panel=ENDPOINT)
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, rich_help_panel=ENDPOINT)] = 60.0,
    retries: Annotated[int, typer.Option(min=0, rich_help_panel=ENDPOINT)] = 6,
    overwrite: Annotated[bool, typer.Option("--overwrite", rich_help_panel=OUT)] = False,
    json_file: AsJson = None,
) -> None:
    """Sample a store, embed it with the new model, and make lookups: one file, ready to fit."""
    check_written(json_file)

    endpoints = any("://" in (text or "") for text in (embed, embed_old))

    def opened(text: str, model: str, key: str | None) -> Embedder:
        if endpoints and "://" not in text:
            # What is said of an endpoint is said of the other model.
            return open_embedder(text, endpoint=EndpointSettings(model=model, key_env=key))
        settings = EndpointSettings(
            model=model,
            key_env=key,
            requests_per_second=requests_per_second,
            timeout=timeout,
            retries=retries,
            cost_per_million_tokens=cost_per_1m_tokens,
            max_spend=max_spend,
        )
        return open_embedder(text, endpoint=settings)

    new = opened(embed, model, key_env)
    old = None if embed_old is None else opened(embed_old, model_old, key_env_old)
    with (
        closing(open_migrating(store, id=id, vector=vector)) as place,
        waiting(place.name) as advance,
    ):
        made = sample_pairs(
            place,
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
