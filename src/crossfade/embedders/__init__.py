"""Where the new vectors of a backfill come from: a function, an HTTP endpoint, or a file."""

from crossfade.embedders.callable import CallableEmbedder, Embed, open_callable
from crossfade.embedders.choose import open_embedder
from crossfade.embedders.contract import (
    BaseEmbedder,
    Embedder,
    embed_checked,
    embed_parts_checked,
)
from crossfade.embedders.endpoint import Endpoint, EndpointSettings
from crossfade.embedders.vectors import VectorFile

__all__ = [
    "BaseEmbedder",
    "CallableEmbedder",
    "Embed",
    "Embedder",
    "Endpoint",
    "EndpointSettings",
    "VectorFile",
    "embed_checked",
    "embed_parts_checked",
    "open_callable",
    "open_embedder",
]
