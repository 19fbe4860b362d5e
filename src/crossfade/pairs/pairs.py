"""Pairs: rows embedded by both models, with optional labels. What the maps are learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput
from crossfade.pairs.checks import check_rows, good_rows, named_as_swapped, refuse_bad_rows
from crossfade.pairs.files import (
    FilePath,
    Found,
    Vectors,
    find_in_one,
    find_in_several,
    side_in_array,
)
from crossfade.pairs.labels import MISSING, Labels, check, encode
from crossfade.pairs.summary import summarize


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Rows `start` to `start + len(old)` of the pairs. The arrays may be read-only views."""

    start: int
    old: Vectors
    new: Vectors
    labels: NDArray[np.int64] | None


class Pairs:
    """Rows embedded by both models: `old` (rows, old_dim), `new` (rows, new_dim), `labels` (rows,).

    Opened from files, pairs are streamed by `batches` and hold no more than labels in memory;
    `load` brings the vectors in, as float32. Labels are codes 0..C-1 of `classes`.

    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.from_arrays(rng.normal(size=(6, 3)), rng.normal(size=(6, 2)), list("aabbcc"))
    >>> pairs.rows, pairs.old_dim, pairs.new_dim, pairs.labels, pairs.classes.tolist()
    (6, 3, 2, array([0, 0, 1, 1, 2, 2]), ['a', 'b', 'c'])
    """

    def __init__(self, found: Found, *, keep: NDArray[np.bool_] | None = None) -> None:
        self._found = found
        self._keep = keep
        self._arrays: tuple[Vectors, Vectors] | None = None
        self.name = found.name
        self.old_dim = found.old.dim
        self.new_dim = found.new.dim
        self.rows = found.old.rows if keep is None else int(keep.sum())
        self.dropped = found.old.rows - self.rows
        self.labels: NDArray[np.int64] | None = None
        self.classes: NDArray[Any] | None = None
        if found.labels is not None:
            codes = found.labels.codes if keep is None else found.labels.codes[keep]
            present = np.unique(codes[codes != MISSING])
            self.labels = np.where(codes == MISSING, MISSING, np.searchsorted(present, codes))
            self.classes = found.labels.classes[present]

    @classmethod
    def from_arrays(
        cls, old: ArrayLike, new: ArrayLike, labels: ArrayLike | None = None, *, name: str = "pairs"
    ) -> Pairs:
        """Pairs from arrays at hand, checked and loaded."""
        found = Found(
            name,
            side_in_array("old", np.asarray(old), name),
            side_in_array("new", np.asarray(new), name),
            None if labels is None else encode(np.asarray(labels), name),
        )
        check_rows(found)
        if found.labels is not None:
            check(found.labels)
        return cls(found).load()

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        old: FilePath | None = None,
        new: FilePath | None = None,
        labels: FilePath | None = None,
        old_name: str = "old",
        new_name: str = "new",
        labels_name: str = "labels",
        drop_bad_rows: bool = False,
        use_labels: bool = True,
        strict: bool = True,
    ) -> Pairs:
        """Pairs from one file with `old`, `new` and perhaps `labels`, or from a file for each.

        `old`, `new` and `labels` may be `FILE:NAME`, to pick one array of a file. `drop_bad_rows`
        leaves out rows with a NaN, an infinity, only zeros or no label, and then rows that are
        alone in their class. `strict=False` opens pairs to be described, bad labels or not.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pairs.npz"
        >>> np.savez(path, old=np.eye(4), new=np.eye(4), labels=[0, 0, 1, 1])
        >>> Pairs.open(path).rows
        4
        """
        if path is not None and (old is not None or new is not None):
            raise BadInput("pairs are named twice", step="name one file, or --old and --new")
        found = (
            find_in_several(old, new, labels, use_labels)
            if path is None
            else find_in_one(Path(path), (old_name, new_name, labels_name), labels, use_labels)
        )
        check_rows(found)
        if drop_bad_rows:
            return cls(found, keep=good_rows(found))
        if strict and found.labels is not None:
            check(found.labels)
        return cls(found)

    @property
    def old(self) -> Vectors:
        """The old vectors of loaded pairs (rows, old_dim)."""
        return self._loaded()[0]

    @property
    def new(self) -> Vectors:
        """The new vectors of loaded pairs (rows, new_dim)."""
        return self._loaded()[1]

    @property
    def sources(self) -> tuple[str, str]:
        """Where old and new come from: the file, and the array's name in it."""
        old, new = (
            f"{side.where} ({side.called})" if side.called else side.where
            for side in (self._found.old, self._found.new)
        )
        return old, new

    def named_as_swapped(self, models: tuple[str, str] = ("", "")) -> bool:
        """Whether the names of files, arrays and models say that old is new and new is old."""
        return named_as_swapped(self._found, models)

    def batches(self, rows: int | None = None) -> Iterator[PairBatch]:
        """Stream the pairs, at most `rows` at a time; a bad row raises `BadRow`."""
        size = rows or self._found.batch_rows()
        if self._arrays is not None:
            for start in range(0, self.rows, size):
                yield self._batch(start, *(x[start : start + size] for x in self._arrays))
            return
        done = 0
        for start, old, new in self._found.blocks(size):
            if self._keep is None:
                for side, x in ((self._found.old, old), (self._found.new, new)):
                    refuse_bad_rows(side, x, start)
            else:
                mask = self._keep[start : start + len(old)]
                old, new = old[mask], new[mask]
            if len(old):
                yield self._batch(done, old, new)
                done += len(old)

    def load(self) -> Pairs:
        """The same pairs with their vectors in memory, as contiguous float32."""
        if self._arrays is not None:
            return self
        old = np.empty((self.rows, self.old_dim), np.float32)
        new = np.empty((self.rows, self.new_dim), np.float32)
        for batch in self.batches():
            place = slice(batch.start, batch.start + len(batch.old))
            old[place], new[place] = batch.old, batch.new
        return self._with_arrays(old, new, self.labels)

    def take(self, indices: ArrayLike) -> Pairs:
        """Loaded pairs of these rows; label codes keep their meaning.

        >>> pairs = Pairs.from_arrays(np.eye(4), np.eye(4), [0, 0, 1, 1])
        >>> pairs.take([0, 3]).labels
        array([0, 1])
        """
        old, new = self._loaded()
        chosen = np.asarray(indices)
        labels = None if self.labels is None else self.labels[chosen]
        return self._with_arrays(old[chosen], new[chosen], labels)

    def describe(self) -> dict[str, Any]:
        """Rows, dimensions, norms, bad rows and classes, in one pass that no bad row stops."""
        return summarize(self._found) | {"dropped": self.dropped}

    def _batch(self, start: int, old: Vectors, new: Vectors) -> PairBatch:
        labels = None if self.labels is None else self.labels[start : start + len(old)]
        return PairBatch(start, old, new, labels)

    def _loaded(self) -> tuple[Vectors, Vectors]:
        if self._arrays is None:
            raise BadInput("the vectors are not loaded", where=self.name, step="call load() first")
        return self._arrays

    def _with_arrays(self, old: Vectors, new: Vectors, labels: NDArray[np.int64] | None) -> Pairs:
        found = Found(
            self.name,
            side_in_array("old", old, self._found.old.where, self._found.old.called),
            side_in_array("new", new, self._found.new.where, self._found.new.called),
            None
            if labels is None or self.classes is None
            else Labels(labels, self.classes, self.name),
        )
        made = Pairs(found)
        made._arrays = (old, new)
        made.labels, made.classes, made.dropped = labels, self.classes, self.dropped
        return made
