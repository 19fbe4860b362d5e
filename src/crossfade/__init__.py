"""Crossfade: upgrade an embedding model without re-embedding the gallery first."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossfade._version import __version__
from crossfade.errors import BadInput, CrossfadeError

if TYPE_CHECKING:
    from crossfade.compatibility import Compatibility, Held, evaluate
    from crossfade.lookups import evaluate_on_store, read_held, sample_pairs
    from crossfade.migration import Migration, Searcher
    from crossfade.pairs import Pairs
    from crossfade.stores import Range, open_store
    from crossfade.upgrade import Upgrade

__all__ = [
    "BadInput",
    "Compatibility",
    "CrossfadeError",
    "Held",
    "Migration",
    "Pairs",
    "Range",
    "Searcher",
    "Upgrade",
    "__version__",
    "evaluate",
    "evaluate_on_store",
    "open_store",
    "read_held",
    "sample_pairs",
]
_HOMES = {
    "Compatibility": "crossfade.compatibility",
    "Held": "crossfade.compatibility",
    "Migration": "crossfade.migration",
    "Pairs": "crossfade.pairs",
    "Range": "crossfade.stores",
    "Searcher": "crossfade.migration",
    "Upgrade": "crossfade.upgrade",
    "evaluate": "crossfade.compatibility",
    "evaluate_on_store": "crossfade.lookups",
    "open_store": "crossfade.stores",
    "read_held": "crossfade.lookups",
    "sample_pairs": "crossfade.lookups",
}


def __getattr__(name: str) -> Any:
    # On first use: what a program does not touch it does not wait for.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'crossfade' has no attribute {name!r}")
