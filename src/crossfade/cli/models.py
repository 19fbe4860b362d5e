"""How a command names two models, and endpoints among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from crossfade.embedders import Embedder, EndpointSettings, open_embedder

ENDPOINT = "HTTP endpoints"
NewModel = Annotated[str, typer.Option(help="The new endpoint's model.", rich_help_panel=ENDPOINT)]
OldModel = Annotated[str, typer.Option(help="The old endpoint's model.", rich_help_panel=ENDPOINT)]
NewKey = Annotated[
    str | None,
    typer.Option(help="The environment variable with the new one's key.", rich_help_panel=ENDPOINT),
]
OldKey = Annotated[
    str | None, typer.Option(help="With the old one's key.", rich_help_panel=ENDPOINT)
]
Price = Annotated[float | None, typer.Option(min=0, rich_help_panel=ENDPOINT)]
MaxSpend = Annotated[
    float | None,
    typer.Option(
        min=0, help="On each endpoint, by --cost-per-1m-tokens.", rich_help_panel=ENDPOINT
    ),
]
Rate = Annotated[float | None, typer.Option(min=1e-6, rich_help_panel=ENDPOINT)]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Requests at a time, at most: fewer if it says that it is too many. Without it, as "
        "many as it answers faster for.",
        rich_help_panel=ENDPOINT,
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, rich_help_panel=ENDPOINT)]
Retries = Annotated[int, typer.Option(min=0, rich_help_panel=ENDPOINT)]


@dataclass(frozen=True)
class Model:
    """One model as it was typed."""

    text: str
    model: str = ""
    key_env: str | None = None

    @property
    def endpoint(self) -> bool:
        return "://" in self.text


def open_models(
    new: Model, old: Model | None, limits: EndpointSettings
) -> tuple[Embedder, Embedder | None]:
    """Both embedders; `limits` are those of the endpoints among them.

    >>> open_models(Model("json:dumps"), None, EndpointSettings())
    (CallableEmbedder('json:dumps'), None)
    """
    endpoints = any(one is not None and one.endpoint for one in (new, old))
    return _opened(new, limits, endpoints), None if old is None else _opened(old, limits, endpoints)


def _opened(one: Model, limits: EndpointSettings, endpoints: bool) -> Embedder:
    if endpoints and not one.endpoint:
        # What is said of an endpoint is said of the other model.
        limits = EndpointSettings()
    settings = replace(limits, model=one.model, key_env=one.key_env)
    return open_embedder(one.text, endpoint=settings)
