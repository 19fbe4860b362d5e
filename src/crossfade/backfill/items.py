"""Gallery items as orders see them, and the groups they are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput

Float = NDArray[np.float32]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Items:
    """Some items of a gallery: ids, old vectors, F(old), and perhaps classes and priorities."""

    ids: Index
    old: Float
    lifted: Float
    labels: Index | None = None
    priority: NDArray[np.float64] | None = None


class Groups:
    """The mean of F(old) over each class; without labels, over each k-means cluster.

    >>> items = Items(np.arange(3), np.eye(3), np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]))
    >>> Groups.of_classes([items], classes=2).means.tolist()
    [[1.0], [5.0]]
    """

    def __init__(self, means: NDArray[np.float64], *, labelled: bool) -> None:
        self.means = means
        self.labelled = labelled

    @classmethod
    def of_classes(cls, batches: Iterable[Items], classes: int) -> Groups:
        """One pass over the gallery."""
        sums: NDArray[np.float64] | None = None
        counts = np.zeros(classes, np.int64)
        for items in batches:
            if items.labels is None:
                raise BadInput("the gallery has no labels", step="make groups by k-means")
            if sums is None:
                sums = np.zeros((classes, items.lifted.shape[1]))
            # Sums by class as a product with indicators would be dense; sorted stretches are not.
            order = np.argsort(items.labels, kind="stable")
            found, starts = np.unique(items.labels[order], return_index=True)
            sums[found] += np.add.reduceat(items.lifted[order], starts, axis=0, dtype=np.float64)
            counts += np.bincount(items.labels, minlength=classes)
        if sums is None:
            raise BadInput("the gallery is empty")
        # A class without items has no mean, and nobody to ask for it.
        return cls(sums / np.maximum(counts, 1)[:, None], labelled=True)

    @classmethod
    def by_kmeans(cls, lifted: Float, groups: int | None = None, seed: int = 0) -> Groups:
        """Centroids of a sample of lifted vectors; by default one for every twenty, at most 256."""
        from scipy.cluster.vq import kmeans2

        wanted = groups or max(2, min(256, len(lifted) // 20))
        rng = np.random.default_rng(seed)
        centroids, codes = kmeans2(
            np.asarray(lifted, np.float64), wanted, iter=20, minit="++", rng=rng, missing="warn"
        )
        return cls(centroids[np.unique(codes)], labelled=False)

    def codes(self, items: Items) -> Index:
        """The group of each item: its class, or the nearest centroid."""
        if self.labelled:
            if items.labels is None:
                raise BadInput("the gallery has no labels, and the plan was made with some")
            if len(items.labels) and int(items.labels.max()) >= len(self.means):
                raise BadInput(f"class {items.labels.max()} is unknown to the plan")
            return items.labels
        return np.asarray(np.argmin(self.distances(items.lifted), axis=1))

    def distances(self, lifted: Float) -> NDArray[np.float64]:
        """Squared distances of vectors to all means (rows, groups)."""
        x = np.asarray(lifted, np.float64)
        own, means = np.vecdot(x, x)[:, None], np.vecdot(self.means, self.means)[None, :]
        return np.asarray(own - 2 * x @ self.means.T + means)
