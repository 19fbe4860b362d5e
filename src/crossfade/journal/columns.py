"""The columns a migration adds to a store: the shared vector, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from crossfade.stores import Column, Store

VECTOR = "crossfade_vector"
STATE = "crossfade_state"
UPGRADE = "crossfade_upgrade"
PRINT = "crossfade_print"
SOURCE = "crossfade_source"
SUM = "crossfade_sum"
REVISION = "crossfade_revision"
KNOWN = (STATE, UPGRADE, PRINT, SOURCE, SUM, REVISION)

State = Literal["old", "lifted", "filled"]
OLD: State = "old"
LIFTED: State = "lifted"
FILLED: State = "filled"
# What columns and journals say that were written before these words.
FORMER: dict[str, State] = {"forward": LIFTED, "new": FILLED}
# Enough of the upgrade's hash to tell upgrades apart, in every row.
HASH_LENGTH = 16


def columns(dim: int) -> tuple[Column, ...]:
    """The shared vector first, then for every row:

    its state (`lifted`, `filled`; nothing yet is `old`), the upgrade that wrote it, fingerprints of
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


def state_of(text: str | None) -> State:
    """The state that a row's column tells.

    >>> state_of(None), state_of("filled"), state_of("forward")
    ('old', 'filled', 'lifted')
    """
    return OLD if text is None else FORMER.get(text, cast(State, text))


def by_state(counts: Mapping[Any, int]) -> dict[State, int]:
    """Counts by what columns tell as counts by state.

    >>> by_state({None: 3, "new": 1, "filled": 2})
    {'old': 3, 'lifted': 0, 'filled': 3}
    """
    out: dict[State, int] = {OLD: 0, LIFTED: 0, FILLED: 0}
    for text, count in counts.items():
        out[state_of(text)] += count
    return out


def count_states(store: Store) -> dict[State, int]:
    """How many rows of a store are in each state."""
    return by_state(store.tally(STATE))
