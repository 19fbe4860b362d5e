"""Rows without a shared vector: those that came since all were lifted, and those that cannot have
one. Found by looking at them, for a number of them says nothing about who they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crossfade.journal.columns import STATE
from crossfade.stores import Id, Store
from crossfade.stores.rows import id_list, matrix, unusable

NAMED = 10
# The first look of a searcher: rows that cannot have a vector are passed over a few at a time.
_SOME = 1000


@dataclass
class Missing:
    """`late` rows could be lifted; `unusable` ones have no old vector that says anything."""

    late: int = 0
    unusable: int = 0
    first_unusable: list[Id] = field(default_factory=list)


def look_for_missing(store: Store) -> Missing:
    """Count both kinds, by a look at each such row."""
    found = Missing()
    for rows in store.stream([store.vector], missing=STATE):
        bad = unusable(rows[store.vector], matrix(rows[store.vector]))
        found.late += int((~bad).sum())
        found.unusable += int(bad.sum())
        room = NAMED - len(found.first_unusable)
        found.first_unusable += np.array(id_list(rows[store.id]), object)[bad][:room].tolist()
    return found


def any_late(store: Store) -> bool:
    """Whether there is any late row."""
    for rows in store.stream([store.vector], size=_SOME, missing=STATE):
        if not unusable(rows[store.vector], matrix(rows[store.vector])).all():
            return True
    return False
