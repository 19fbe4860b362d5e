"""`crossfade serve`: the query side as a service."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crossfade.cli.output import note
from crossfade.errors import BadInput
from crossfade.serving.limits import Limits
from crossfade.serving.server import PORT
from crossfade.serving.server import serve as run

MODELS, STORE, CLIENTS, LIMITS = "Models", "The store", "Clients", "Limits"
_USUAL = Limits()


class Way(StrEnum):
    new = "new"
    old = "old"
    both = "both"
    blend = "blend"


def serve(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    upstream: Annotated[
        str,
        typer.Option(
            help="Where the new model answers in OpenAI's shape: https://host/v1.",
            rich_help_panel=MODELS,
        ),
    ],
    model: Annotated[str, typer.Option(help="Its name there.", rich_help_panel=MODELS)],
    upstream_old: Annotated[
        str | None, typer.Option(help="Where the old model does.", rich_help_panel=MODELS)
    ] = None,
    model_old: Annotated[
        str | None, typer.Option(help="Its name there.", rich_help_panel=MODELS)
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable with its key.", rich_help_panel=MODELS),
    ] = None,
    key_env_old: Annotated[
        str | None,
        typer.Option(help="The same for the old model.", rich_help_panel=MODELS),
    ] = None,
    dimensions: Annotated[
        int | None,
        typer.Option(min=1, help="What the new model is asked for.", rich_help_panel=MODELS),
    ] = None,
    dimensions_old: Annotated[
        int | None,
        typer.Option(min=1, help="What the old model is asked for.", rich_help_panel=MODELS),
    ] = None,
    refuse_tokens: Annotated[
        bool,
        typer.Option(
            "--refuse-tokens",
            help="Refuse arrays of tokens, which a model with another tokenizer misreads.",
            rich_help_panel=MODELS,
        ),
    ] = False,
    allow_insecure: Annotated[
        bool,
        typer.Option(
            "--allow-insecure",
            help="Send a key over plain http to another machine.",
            rich_help_panel=MODELS,
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(help="The store to search, as `migrate` names it.", rich_help_panel=STORE),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="A plan, for how to ask; by default as the migration was started.",
            rich_help_panel=STORE,
        ),
    ] = None,
    shadow: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="The share of searches that is also asked another way.",
            rich_help_panel=STORE,
        ),
    ] = None,
    shadow_ask: Annotated[Way, typer.Option(help="Which way.", rich_help_panel=STORE)] = Way.new,
    host: Annotated[
        str, typer.Option(help="Loopback, unless told otherwise.", rich_help_panel=CLIENTS)
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="0 takes any.", rich_help_panel=CLIENTS),
    ] = PORT,
    client_keys_env: Annotated[
        str | None,
        typer.Option(
            help="The environment variable with the clients' keys, separated by commas.",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    client_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of the clients' keys, one a line.",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    access_log: Annotated[
        bool,
        typer.Option(
            "--access-log",
            help="Log every request, not failures alone.",
            rich_help_panel=CLIENTS,
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for a request.", rich_help_panel=LIMITS),
    ] = _USUAL.seconds,
    max_body: Annotated[
        int, typer.Option(min=1, help="Bytes of a request.", rich_help_panel=LIMITS)
    ] = _USUAL.body_bytes,
    max_in_flight: Annotated[
        int,
        typer.Option(min=1, help="Requests at a time; more are sent away.", rich_help_panel=LIMITS),
    ] = _USUAL.in_flight,
    retries: Annotated[
        int, typer.Option(min=0, help="Of an upstream that is away.", rich_help_panel=LIMITS)
    ] = _USUAL.retries,
) -> None:
    """Serve the query side: existing clients change a base URL, and the model's name says what
    comes back."""
    limits = Limits(seconds=timeout, body_bytes=max_body, in_flight=max_in_flight, retries=retries)
    options: dict[str, Any] = {
        "upstream_old": upstream_old,
        "model_old": model_old,
        "key_env": key_env,
        "key_env_old": key_env_old,
        "dimensions": dimensions,
        "dimensions_old": dimensions_old,
        "take_tokens": not refuse_tokens,
        "allow_insecure": allow_insecure,
        "store": store,
        "plan": plan,
        "shadow": shadow,
        "shadow_ask": shadow_ask.value,
        "host": host,
        "port": port,
        "client_keys": _keys(client_keys_env, client_keys),
        "access_log": access_log,
        "limits": limits,
    }
    run(upgrade, upstream=upstream, model=model, ready=_told, log=True, **options)


def _told(url: str) -> None:
    note(f"serving at {url}/v1 (Ctrl-C to stop)")


def _keys(variable: str | None, file: Path | None) -> list[str] | None:
    if variable is None and file is None:
        return None
    if variable is not None and file is not None:
        raise BadInput("client keys are given twice", step="name a variable or a file")
    if file is not None:
        found = file.read_text(encoding="utf-8").split()
    else:
        found = os.environ.get(variable or "", "").replace(",", " ").split()
    if not found:
        where = str(file) if file is not None else f"the environment variable {variable}"
        raise BadInput("holds no client key", where=where, step="put one there")
    return found
