"""A sample of a store's rows, by which scores of two models are brought to one scale.

Which rows it is of is decided when rows are lifted, and kept in the journal's place: the ids alone,
so that whoever reads them sees the rows as they are by then, filled ones among them.
"""

from __future__ import annotations

import json

import numpy as np

from crossfade.errors import BadInput
from crossfade.journal.columns import FILLED, STATE, VECTOR, state_of
from crossfade.search.calibration import FEWEST, Sample
from crossfade.stores import Id, Store
from crossfade.stores.rows import matrix, unusable
from crossfade.stores.sampling import draw_ids

KEY = "sample"
ROWS = 1000
_NO_ROWS = np.zeros((0, 0), np.float32)


def keep_sample(store: Store) -> None:
    """Draw a sample and write down which rows it is of."""
    store.put(KEY, json.dumps(draw_ids(store, ROWS)))


def read_sample(store: Store, *, filled: bool) -> Sample:
    """The rows of the sample as they are now; one is drawn where none was kept, or it has gone.

    F of the old vectors is for whoever has F to add.
    """
    found = _read(store, _kept(store.get(KEY)), filled)
    if len(found.old) < min(FEWEST, store.describe().rows):
        found = _read(store, draw_ids(store, ROWS), filled)
    if not len(found.old):
        raise BadInput(
            "has no rows to bring scores to one scale by",
            where=store.name,
            step="ask with ask='old'",
        )
    return found


def _kept(text: str | None) -> list[Id]:
    """Ids that were written down; none where they cannot be read, for others are drawn then."""
    try:
        ids = json.loads(text or "[]")
    except ValueError:
        return []
    good = isinstance(ids, list) and all(isinstance(key, (int, str)) for key in ids)
    return ids if good else []


def _read(store: Store, ids: list[Id], filled: bool) -> Sample:
    rows = store.read(ids, [store.vector, *([VECTOR, STATE] if filled else [])])
    old = matrix(rows[store.vector])
    good = ~unusable(rows[store.vector], old)
    if not filled:
        return Sample(old[good], _NO_ROWS, _NO_ROWS)
    new = np.array([state_of(state) == FILLED for state in rows[STATE].to_pylist()], bool)
    return Sample(old[good], _NO_ROWS, matrix(rows[VECTOR])[good & new])
