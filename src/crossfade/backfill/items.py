"""Gallery items as orders see them, and the groups they are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput, MissingExtra

Float = NDArray[np.float32]
Index = NDArray[np.int64]
# What a core keeps close by: a product is looked at while it is there.
_NEARNESS_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Items:
    """Some items of a gallery: ids, old vectors, F(old), and perhaps classes and priorities.

    Vectors may be of float16, as files hold them, until an order looks at them.
    """

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

    def __init__(
        self,
        means: NDArray[np.float64],
        *,
        labelled: bool,
        present: NDArray[np.bool_] | None = None,
    ) -> None:
        self.means = means
        self.labelled = labelled
        self.present = np.ones(len(means), bool) if present is None else present
        """A class without items has no mean; it is nobody's own, and nobody's other."""
        self.narrow = means.astype(np.float32)
        self._halves = np.where(self.present, np.vecdot(means, means) / 2, np.inf)

    @classmethod
    def of_classes(cls, batches: Iterable[Items], classes: int) -> Groups:
        """One pass over the gallery; items without a class count for none."""
        return cls.of_sums(*class_sums(batches, classes))

    @classmethod
    def of_sums(cls, sums: NDArray[np.float64], counts: Index) -> Groups:
        """Of the sums (classes, n) of each class, and how many items it has."""
        return cls(sums / np.maximum(counts, 1)[:, None], labelled=True, present=counts > 0)

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
        """The group of each item: its class; without one, the nearest mean."""
        if not self.labelled:
            return self._nearest(items.lifted)
        if items.labels is None:
            raise BadInput("the gallery has no labels, and the plan was made with some")
        if len(items.labels) and int(items.labels.max()) >= len(self.means):
            raise BadInput(f"class {items.labels.max()} is unknown to the plan")
        nowhere = items.labels < 0
        if not nowhere.any():
            return items.labels
        codes = items.labels.copy()
        codes[nowhere] = self._nearest(items.lifted[nowhere])
        return codes

    def by_nearness(self) -> Groups:
        """The same means where no item has a class: each item counts to the nearest.

        >>> items = Items(np.arange(2), np.eye(2), np.array([[1.0], [4.0]]))
        >>> Groups(np.array([[0.0], [5.0]]), labelled=True).by_nearness().codes(items).tolist()
        [0, 1]
        """
        return Groups(self.means, labelled=False, present=self.present)

    def nearness(self, lifted: Float) -> Iterator[tuple[slice, Float]]:
        """Some rows at a time, x·m − ‖m‖² / 2 for all means m (rows, groups): nearest is largest.

        Twice the difference of two of them is the difference of the squared distances.
        """
        step = max(1, _NEARNESS_BYTES // (4 * len(self.means)))
        for first in range(0, len(lifted), step):
            rows = slice(first, first + step)
            found = np.asarray(lifted[rows], np.float32) @ self.narrow.T
            found -= self._halves.astype(np.float32)
            yield rows, found

    def _nearest(self, lifted: Float) -> Index:
        out = np.empty(len(lifted), np.int64)
        for rows, found in self.nearness(lifted):
            out[rows] = found.argmax(axis=1)
        return out


def class_sums(batches: Iterable[Items], classes: int) -> tuple[NDArray[np.float64], Index]:
    """The sum of F(old) over each class, and how many items it has."""
    sums: NDArray[np.float64] | None = None
    counts = np.zeros(classes, np.int64)
    for items in batches:
        if items.labels is None:
            raise BadInput("the gallery has no labels", step="make groups by k-means")
        if sums is None:
            sums = np.zeros((classes, items.lifted.shape[1]))
        add_rows(items.lifted, items.labels, sums)
        counts += np.bincount(items.labels[items.labels >= 0], minlength=classes)
    if sums is None:
        raise BadInput("the gallery is empty")
    return sums, counts


def add_rows(x: Float, codes: Index, sums: NDArray[np.float64]) -> None:
    """Add each row of `x` to the row of `sums` that its code names; a negative code names none.

    >>> sums = np.zeros((2, 1))
    >>> add_rows(np.array([[1.0], [2.0], [4.0]], "f4"), np.array([1, -1, 1]), sums)
    >>> sums.tolist()
    [[0.0], [5.0]]
    """
    try:
        from crossfade.backfill.rows import add_by_code, wide_parts
    except ImportError as error:
        raise MissingExtra("numba", extra="plan", need="an order by class") from error
    # In one thread: sums in the order of the rows are the same to the last bit on any machine.
    codes = np.ascontiguousarray(codes, np.int64)
    for rows, some in wide_parts(x):
        add_by_code(some, codes[rows], sums)
