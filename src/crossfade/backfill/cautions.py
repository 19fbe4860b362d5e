"""What makes a plan less certain than its numbers look."""

from __future__ import annotations

import numpy as np

from crossfade.compatibility.held import Held
from crossfade.retrieval import SameClass

FEW = 10
"""Items of a class below which the order chosen was a worse one (docs/backfill.md)."""


def few_rows(held: Held) -> list[str]:
    """A warning where classes of the pairs have too few items to show crowding.

    >>> from crossfade.pairs import Pairs
    >>> rng = np.random.default_rng(0)
    >>> old, new = rng.normal(size=(2, 40, 3))
    >>> few_rows(Held.of(Pairs.from_arrays(old, new, np.arange(40) % 2)))
    []
    >>> few_rows(Held.of(Pairs.from_arrays(old, new, np.arange(40) % 8)))[0][:38]
    'the pairs have 5 items of a class in t'
    """
    if not isinstance(held.relevance, SameClass):
        return []
    labels = held.relevance.gallery_labels
    counts = np.bincount(labels[labels >= 0])
    middle = float(np.median(counts[counts > 0])) if counts.any() else 0.0
    if middle >= FEW:
        return []
    return [
        f"the pairs have {middle:g} items of a class in the median: how items filled first crowd "
        "the top ranks shows in full classes only, so that another order may be best in your "
        f"gallery; plan on {FEW} or more"
    ]
