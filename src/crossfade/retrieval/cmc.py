"""CMC-Top k (Section 4.2): is at least one of the k nearest gallery items of the query's class?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def cmc(ranks: Sequence[NDArray[np.int64]], k: int = 1) -> float:
    """Percentage of queries with a relevant item among the first k; those without any left out.

    >>> cmc([np.array([1, 5]), np.array([3])], k=1)
    50.0
    """
    best = [r[0] for r in ranks if len(r)]
    return float(np.mean(np.asarray(best) <= k) * 100.0) if best else float("nan")
