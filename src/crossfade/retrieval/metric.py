"""Metrics by name: `cmc@k` and `mAP`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.retrieval.cmc import cmc
from crossfade.retrieval.mean_ap import mean_ap

_CMC = re.compile(r"cmc@([1-9][0-9]{0,8})")


def check_metric(name: str) -> str:
    """The name, if there is such a metric.

    >>> check_metric("cmc@5")
    'cmc@5'
    """
    if name != "mAP" and not _CMC.fullmatch(name):
        raise BadInput(f"there is no metric named {name!r}", step="use mAP or cmc@k, e.g. cmc@1")
    return name


def score(name: str, ranks: Sequence[NDArray[np.int64]]) -> float:
    """The metric of that name, in percent, over the relevant ranks of all queries.

    >>> score("cmc@1", [np.array([1])])
    100.0
    """
    if name == "mAP":
        return mean_ap(ranks)
    match = _CMC.fullmatch(check_metric(name))
    assert match is not None  # noqa: S101 - check_metric just matched it
    return cmc(ranks, int(match[1]))
