"""What a worker gives back: a value, or an error of ours that is raised where it was asked for.

Exceptions do not travel well: they take along what they were made of. What people read of one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crossfade.errors import (
    BadInput,
    BudgetSpent,
    CrossfadeError,
    EmbedderError,
    NotCompatible,
    StoreBusy,
    StoreError,
)

_KINDS: dict[str, type[CrossfadeError]] = {
    kind.__name__: kind
    for kind in (BadInput, NotCompatible, StoreBusy, StoreError, EmbedderError, BudgetSpent)
}


@dataclass(frozen=True)
class Failure:
    """An error's words and its kind."""

    kind: str
    cause: str
    where: str | None
    step: str | None

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """
        >>> Failure.of(BadInput("has a NaN")).kind
        'BadInput'
        """
        if not isinstance(error, CrossfadeError):
            lines = str(error).splitlines()
            said = f": {lines[0][:200]}" if lines else ""
            return cls("StoreError", f"a worker raised {type(error).__name__}{said}", None, None)
        kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KINDS), "")
        return cls(kind or "StoreError", error.cause, error.where, error.step)

    def error(self) -> CrossfadeError:
        return _KINDS.get(self.kind, StoreError)(self.cause, where=self.where, step=self.step)


def outcome(work: Callable[[Any], Any], item: Any) -> Any:
    """What `work` makes of `item`, or a `Failure`."""
    try:
        return work(item)
    except Exception as error:
        return Failure.of(error)


def value_of(found: Any) -> Any:
    """The value, or the error raised."""
    if isinstance(found, Failure):
        raise found.error()
    return found
