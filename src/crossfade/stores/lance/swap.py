"""The moment at which a shared column takes the place of the old one: both change names at once.

    vector            → crossfade_swapped_vector     the old vectors, aside
    crossfade_vector  → vector                       the shared ones

Lance knows columns by number, not by name. A writer that opened the table before the swap goes on
writing old vectors into the old column, wherever that is now, and those are not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossfade.stores.lance.fragments import looked_up
from crossfade.stores.names import PREFIX

_ASIDE = f"{PREFIX}swapped_"
# So many versions a killed `promote` can be behind: others write meanwhile.
_VERSIONS = 64


@dataclass(frozen=True)
class Swap:
    """`vector` holds what `column` held, and its own vectors are aside; no column, no swap.

    >>> swap = Swap("vector", "crossfade_vector")
    >>> swap.aside, swap.kept("crossfade_vector"), swap.kept("vector"), swap.shown("vector")
    ('crossfade_swapped_vector', 'vector', 'crossfade_swapped_vector', 'crossfade_vector')
    """

    vector: str
    column: str | None

    @property
    def aside(self) -> str:
        return _ASIDE + (self.column or "").removeprefix(PREFIX)

    def kept(self, name: str) -> str:
        """What Lance calls a column of ours."""
        if self.column is None:
            return name
        return {self.vector: self.aside, self.column: self.vector}.get(name, name)

    def shown(self, name: str) -> str:
        """What we call a column of Lance's."""
        if self.column is None:
            return name
        return {self.aside: self.vector, self.vector: self.column}.get(name, name)

    def renames(self) -> list[dict[str, Any]]:
        return [
            {"path": self.vector, "name": self.aside},
            {"path": self.column, "name": self.vector},
        ]

    def reversed(self) -> list[dict[str, Any]]:
        return [
            {"path": self.vector, "name": self.column},
            {"path": self.aside, "name": self.vector},
        ]


def swapped_in(schema: pa.Schema, vector: str) -> Swap:
    """The swap that a table is in."""
    for name in schema.names:
        if name.startswith(_ASIDE):
            return Swap(vector, PREFIX + name.removeprefix(_ASIDE))
    return Swap(vector, None)


def last_swapped(now: Callable[[], Any], path: Path, swap: Swap) -> int | None:
    """The last version before the old column was dropped, if that is not long ago."""
    latest = now()
    for version in range(latest.version - 1, max(0, latest.version - _VERSIONS), -1):
        try:
            schema = looked_up(partial(latest.checkout_version, version)).schema
        except (OSError, ValueError, RuntimeError):
            # Cleaned up by its owner.
            return None
        if swap.aside in schema.names:
            return int(version)
    return None
