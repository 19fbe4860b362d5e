"""Which embedder a function, or a text on the command line, means."""

from __future__ import annotations

from pathlib import Path

from crossfade.embedders.callable import FORM, CallableEmbedder, Embed, open_callable
from crossfade.embedders.contract import Embedder
from crossfade.embedders.endpoint import Endpoint, EndpointSettings
from crossfade.errors import BadInput, shortened
from crossfade.files import split_name

_FILES = (".parquet", ".lance", ".npz", ".safetensors", ".npy")


def open_embedder(
    given: Embedder | Embed | str | Path,
    *,
    endpoint: EndpointSettings | None = None,
    ids: str | None = None,
) -> Embedder:
    """The embedder that `given` means: itself, or a function from texts to vectors, or, of a text,
    the first of these rules that fits:

    1. it holds `://`: an OpenAI-compatible endpoint, asked as `endpoint` says;
    2. it ends in .parquet, .lance, .npz or .safetensors, perhaps with `:NAME`, or is the path of
       something that is there: a file of vectors, `ids` its column of ids;
    3. it is `module:function`: a function that takes a list of texts.

    >>> open_embedder("json:dumps")
    CallableEmbedder('json:dumps')
    >>> open_embedder("https://example.com/v1", endpoint=EndpointSettings(model="small"))
    Endpoint('https://example.com/v1', model='small')
    >>> open_embedder("nothing")
    Traceback (most recent call last):
    crossfade.errors.BadInput: 'nothing': is neither an endpoint, nor a file ... nor a function ...
    """
    if isinstance(given, Embedder):
        return given
    if callable(given):
        return CallableEmbedder(given, getattr(given, "__qualname__", type(given).__name__))
    text = str(given)
    if "://" in text:
        _only(ids is None, "a column of ids is for a file of vectors", "an endpoint")
        return Endpoint(text, endpoint or EndpointSettings())
    settings = endpoint in (None, EndpointSettings())
    path, _ = split_name(text)
    if path.suffix.lower() in _FILES or (text and Path(text).exists()):
        _only(settings, "a model, a key or a limit is for an endpoint", "a file of vectors")
        from crossfade.embedders.vectors import VectorFile

        return VectorFile(text, ids=ids)
    if FORM.fullmatch(text):
        _only(settings, "a model, a key or a limit is for an endpoint", "a function")
        _only(ids is None, "a column of ids is for a file of vectors", "a function")
        return open_callable(text)
    raise BadInput(
        "is neither an endpoint, nor a file of vectors, nor a function",
        where=shortened(text),
        step="give https://host/v1, a .parquet, .lance, .npz or .safetensors file, "
        "or module:function",
    )


def _only(fits: bool, what: str, given: str) -> None:
    if not fits:
        raise BadInput(f"{what}, and {given} was given", step="leave the option out")
