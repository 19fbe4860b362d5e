"""The columns a migration adds to a store: the shared vector, and what is known of it."""

from __future__ import annotations

from typing import Literal

from crossfade.stores import Column

VECTOR = "crossfade_vector"
STATE = "crossfade_state"
UPGRADE = "crossfade_upgrade"
PRINT = "crossfade_print"
SOURCE = "crossfade_source"
SUM = "crossfade_sum"
REVISION = "crossfade_revision"
KNOWN = (STATE, UPGRADE, PRINT, SOURCE, SUM, REVISION)

State = Literal["forward", "new"]
FORWARD: State = "forward"
NEW: State = "new"
# Enough of the upgrade's hash to tell upgrades apart, in every row.
HASH_LENGTH = 16


def columns(dim: int) -> tuple[Column, ...]:
    """The shared vector first, then for every row:

    its state (`forward`, `new`; nothing yet is `old`), the upgrade that wrote it, fingerprints of
    the old vector and of the source it was made from, a checksum of the shared vector itself, and
    how often either was seen to change.

    >>> [c.name for c in columns(8)][:2]
    ['crossfade_vector', 'crossfade_state']
    """
    return (
        Column(VECTOR, "vector", dim),
        Column(STATE, "text"),
        Column(UPGRADE, "text"),
        Column(PRINT, "integer"),
        Column(SOURCE, "integer"),
        Column(SUM, "integer"),
        Column(REVISION, "integer"),
    )
