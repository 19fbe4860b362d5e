"""The eight cases, Query/Gallery as in the paper's tables, and the vectors each one compares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput

CASES = (
    "old/old",
    "new/old",
    "new/new",
    "F(old)/old",
    "F(old)/F(old)",
    "B(new)/F(old)",
    "B(new)/old",
    "B(new)/B(new)",
)


def check_case(name: str) -> str:
    """The name, if there is such a case.

    >>> check_case("B(new)/old")
    'B(new)/old'
    """
    if name not in CASES:
        raise BadInput(f"there is no case named {name!r}", step=f"use one of {', '.join(CASES)}")
    return name


def case_vectors(
    name: str,
    vectors: Mapping[str, NDArray[np.float32]],
    gallery: Mapping[str, NDArray[np.float32]] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Query and gallery of a case from the vectors named `old`, `new`, `F(old)` and `B(new)`.

    The gallery's are the queries' own, where no others are given. Where their dimensions differ
    the longer ones are cut, the paper's rule (Section 3.2).

    >>> q, g = case_vectors("B(new)/old", {"B(new)": np.ones((1, 3)), "old": np.ones((1, 2))})
    >>> q.shape, g.shape
    ((1, 2), (1, 2))
    """
    asking, asked = check_case(name).split("/")
    query, items = vectors[asking], (vectors if gallery is None else gallery)[asked]
    dim = min(query.shape[1], items.shape[1])
    return query[:, :dim], items[:, :dim]
