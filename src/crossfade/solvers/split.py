"""The validation split, cut from the pairs and never learned from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Validation ranks every row against every other at each check: beyond this, more rows cost time
# and no longer change the choice.
MOST_ROWS = 2000


def validation_rows(
    rows: int, labels: NDArray[np.int64] | None, share: float | None, seed: int
) -> NDArray[np.bool_]:
    """Mask of the rows held out: about `share` of them (10 %, or 20 % of fewer than 5,000 rows).

    With labels every class held out gives at least two rows, since a lone row has nothing to find.
    Classes too small to spare two of their share take turns.

    >>> validation_rows(10, np.repeat([0, 1], 5), 0.4, seed=0).sum()
    np.int64(4)
    """
    if share is None:
        share = 0.1 if rows >= 5000 else 0.2
    share = min(share, MOST_ROWS / rows)
    rng = np.random.default_rng(seed)
    held = np.zeros(rows, dtype=bool)
    if labels is None:
        held[rng.permutation(rows)[: min(max(2, round(share * rows)), rows - 2)]] = True
        return held
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    classes = np.split(order, bounds)
    due = 0.0
    for i in rng.permutation(len(classes)):
        members = classes[i]
        due += share * len(members)
        take = min(int(due + 1e-9), len(members))
        if take >= 2:
            held[rng.permutation(members)[:take]] = True
            due -= take
    if not held.any():
        # Too few rows for their share to be a pair: one pair of the largest class all the same.
        held[rng.permutation(max(classes, key=len))[:2]] = True
    return held
