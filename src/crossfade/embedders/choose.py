"""Which embedder a function, or a text on the command line, means."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from crossfade.embedders.callable import FORM, CallableEmbedder, Embed, open_callable
from crossfade.embedders.contract import BaseEmbedder, Embedder, PlainEmbedder
from crossfade.embedders.endpoint import Endpoint, EndpointSettings
from crossfade.errors import BadInput, CrossfadeError, shortened
from crossfade.files import split_name

GROUP = "crossfade.embedders"
"""Entry points of other distributions: a scheme, and what opens an address that begins with it."""
_FILES = (".parquet", ".lance", ".npz", ".safetensors", ".npy", ".faiss", ".index")


def open_embedder(
    given: Embedder | Embed | str | Path,
    *,
    endpoint: EndpointSettings | None = None,
    ids: str | None = None,
) -> BaseEmbedder:
    """The embedder that `given` means: itself, or a function from texts to vectors, or, of a text,
    the first of these rules that fits:

    1. it holds `://`: what another distribution opens for its scheme, or an OpenAI-compatible
       endpoint, asked as `endpoint` says;
    2. it ends in .parquet, .lance, .npz, .safetensors, .faiss or .index, perhaps with `:NAME`, or
       is the path of something that is there: a file of vectors, `ids` its column of ids;
    3. it is `module:function`: a function that takes a list of texts.

    >>> open_embedder("json:dumps")
    CallableEmbedder('json:dumps')
    >>> open_embedder("https://example.com/v1", endpoint=EndpointSettings(model="small"))
    Endpoint('https://example.com/v1', model='small')
    >>> open_embedder("nothing")
    Traceback (most recent call last):
    crossfade.errors.BadInput: 'nothing': is neither an endpoint, nor a file ... nor a function ...
    """
    if isinstance(given, BaseEmbedder):
        return given
    if isinstance(given, Embedder):
        return PlainEmbedder(given)
    if callable(given):
        return CallableEmbedder(given, getattr(given, "__qualname__", type(given).__name__))
    text = str(given)
    settings = is_plain(endpoint)
    if "://" in text:
        _only(ids is None, "a column of ids is for a file of vectors", "an endpoint")
        found = _of_scheme(text)
        if found is None:
            return Endpoint(text, endpoint or EndpointSettings())
        _only(settings, "a model, a key or a limit is for an endpoint", found.name)
        return found
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
        step="give https://host/v1, a .parquet, .lance, .npz, .safetensors or .faiss file, "
        "or module:function",
    )


def is_plain(endpoint: EndpointSettings | None) -> bool:
    """Whether nothing was asked for that only an endpoint has."""
    return endpoint in (None, EndpointSettings())


def check_function(text: str, endpoint: EndpointSettings | None) -> bool:
    """Whether `text` names a function, by its form alone: it is not loaded."""
    path, _ = split_name(text)
    if path.suffix.lower() in _FILES or not FORM.fullmatch(text) or Path(text).exists():
        return False
    _only(is_plain(endpoint), "a model, a key or a limit is for an endpoint", "a function")
    return True


def _only(fits: bool, what: str, given: str) -> None:
    if not fits:
        raise BadInput(f"{what}, and {given} was given", step="leave the option out")


def _of_scheme(text: str) -> BaseEmbedder | None:
    """What another distribution makes of the address; None if none knows its scheme."""
    scheme = text.split("://", 1)[0]
    for entry in () if scheme in ("http", "https") else entry_points(group=GROUP, name=scheme):
        try:
            made = entry.load()(text)
        except CrossfadeError:
            raise
        except Exception as error:
            raise _broken(entry, f"raised {type(error).__name__}") from error
        if not isinstance(made, Embedder):
            raise _broken(entry, f"gave a {type(made).__name__}, which is no embedder")
        return open_embedder(made)
    return None


def _broken(entry: EntryPoint, cause: str) -> BadInput:
    # The address and what was said of it stay out: they may hold a key.
    name = entry.dist.name if entry.dist is not None else "its distribution"
    return BadInput(
        cause, where=f"the embedder of {entry.name}://", step=f"mend or uninstall {name}"
    )
