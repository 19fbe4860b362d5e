"""Every case of an upgrade on rows it was not learned from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.cases import CASES, case_vectors
from crossfade.retrieval import SameClass
from crossfade.retrieval import measure as measure_case
from crossfade.upgrade import Upgrade

METRICS = ("cmc@1", "mAP")


def measure(
    upgrade: Upgrade,
    old: NDArray[np.float32],
    new: NDArray[np.float32],
    labels: NDArray[np.int64],
) -> dict[str, dict[str, float]]:
    """CMC-Top1 and mAP of all cases in percent; each row in turn queries all the others.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, size=60)
    >>> new = (np.eye(2)[labels] + 0.1 * rng.normal(size=(60, 2))).astype(np.float32)
    >>> upgrade = Upgrade(solver="closed_form").fit(-new, new, labels)
    >>> scores = measure(upgrade, -new, new, labels)
    >>> scores["new/old"]["cmc@1"], scores["B(new)/old"]["cmc@1"]
    (0.0, 100.0)
    """
    vectors = {
        "old": upgrade.in_shared_space(old),
        "new": new,
        "B(new)": upgrade.backward(new),
        "F(old)": upgrade.forward(old),
    }
    relevance = SameClass.among(labels)
    return {
        case: measure_case(*case_vectors(case, vectors), relevance, METRICS).means()
        for case in CASES
    }


def guessing(labels: NDArray[np.int64]) -> float:
    """CMC-Top1 of an index that answers at random, in percent.

    >>> guessing(np.array([0, 0, 1, 1]))
    33.33333333333333
    """
    counts = np.bincount(labels)
    return float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1)) * 100.0)
