"""The paper's orders (Section 3.6, Appendix G): by distance of F(old) to its class mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Groups, Items
from crossfade.errors import BadInput


def far_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by mean squared error."""
    means, codes = _known(items, groups)
    gaps = items.lifted - means[codes]
    return np.asarray(np.vecdot(gaps, gaps) / gaps.shape[1], dtype=np.float64)


def near_mse(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Nearest first."""
    return -far_mse(items, groups)


def far_cosine(items: Items, groups: Groups | None, /) -> NDArray[np.float64]:
    """Farthest first by cosine distance."""
    means, codes = _known(items, groups)
    lifted, own = np.asarray(items.lifted, np.float64), means[codes]
    lengths = np.linalg.norm(lifted, axis=1) * np.linalg.norm(own, axis=1)
    return np.asarray(1.0 - np.vecdot(lifted, own) / np.maximum(lengths, 1e-30))


def _known(items: Items, groups: Groups | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if groups is None:
        raise BadInput("this order needs groups", step="give labels, or groups by k-means")
    return groups.means, groups.codes(items)
