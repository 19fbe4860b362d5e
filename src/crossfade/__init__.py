"""Crossfade: upgrade an embedding model without re-embedding the gallery first."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossfade._version import __version__
from crossfade.errors import (
    BadInput,
    BudgetSpent,
    CrossfadeError,
    EmbedderError,
    MissingExtra,
    NotCompatible,
    NotProven,
    StoreError,
)

if TYPE_CHECKING:
    from crossfade.assessment import Answer, quickstart
    from crossfade.backfill.plan import Plan
    from crossfade.backfill.planning import plan
    from crossfade.compatibility import Compatibility, Held, evaluate
    from crossfade.lookups import evaluate_on_store, plan_on_store, read_held, sample_pairs
    from crossfade.migration import Migration
    from crossfade.pairs import Pairs
    from crossfade.report import write_report
    from crossfade.search import Searcher
    from crossfade.serving import serve
    from crossfade.stores import Range, open_store
    from crossfade.upgrade import Upgrade

__all__ = [
    "Answer",
    "BadInput",
    "BudgetSpent",
    "Compatibility",
    "CrossfadeError",
    "EmbedderError",
    "Held",
    "Migration",
    "MissingExtra",
    "NotCompatible",
    "NotProven",
    "Pairs",
    "Plan",
    "Range",
    "Searcher",
    "StoreError",
    "Upgrade",
    "__version__",
    "evaluate",
    "evaluate_on_store",
    "open_store",
    "plan",
    "plan_on_store",
    "quickstart",
    "read_held",
    "sample_pairs",
    "serve",
    "write_report",
]
_HOMES = {
    "Answer": "crossfade.assessment",
    "Compatibility": "crossfade.compatibility",
    "Held": "crossfade.compatibility",
    "Migration": "crossfade.migration",
    "Pairs": "crossfade.pairs",
    "Plan": "crossfade.backfill.plan",
    "Range": "crossfade.stores",
    "Searcher": "crossfade.search",
    "Upgrade": "crossfade.upgrade",
    "evaluate": "crossfade.compatibility",
    "evaluate_on_store": "crossfade.lookups",
    "open_store": "crossfade.stores",
    "plan": "crossfade.backfill.planning",
    "plan_on_store": "crossfade.lookups",
    "quickstart": "crossfade.assessment",
    "read_held": "crossfade.lookups",
    "sample_pairs": "crossfade.lookups",
    "serve": "crossfade.serving",
    "write_report": "crossfade.report",
}

# A library is silent until its application wants to hear it.
logging.getLogger("crossfade").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # On first use: what a program does not touch it does not wait for.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'crossfade' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
