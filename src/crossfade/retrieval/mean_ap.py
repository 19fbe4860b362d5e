"""mAP (Section 4.2): the mean over queries of the area under the precision–recall curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mean_ap(ranks: Sequence[NDArray[np.int64]]) -> float:
    """Mean over queries of mean_k(k / rank_k), in percent; queries without relevant items left out.

    >>> round(mean_ap([np.array([1, 3])]), 2)
    83.33
    """
    values = [np.mean(np.arange(1, len(r) + 1) / r) for r in ranks if len(r)]
    return float(np.mean(values) * 100.0) if values else float("nan")
