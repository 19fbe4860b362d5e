"""Where old, new and labels are found: in one file, in three, or in arrays at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files import ArrayInfo, list_arrays, open_source, read_values, split_name
from crossfade.files.choice import check_vectors
from crossfade.pairs.labels import Labels, encode

SideName = Literal["old", "new"]
Vectors = NDArray[np.float32]
FilePath = str | Path
"""A file, or FILE:NAME for one array of it."""
LOG = ("log_old", "log_new")
"""Queries of a log in a file of pairs: they have no label, and are learned from like the rows."""
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class PairSide:
    """One model's vectors of all pairs, wherever they lie."""

    name: SideName
    where: str
    rows: int
    dim: int
    dtype: np.dtype[Any]
    vectors: Callable[[int], Iterator[NDArray[Any]]]
    """Called with a number of rows, gives the vectors exactly so many at a time."""
    called: str = ""
    """What its file says of it: the array's name, and the model's where the metadata has it."""


def side_in_array(name: SideName, array: NDArray[Any], where: str, called: str = "") -> PairSide:
    """A side in memory."""
    array = np.asarray(array)
    check_vectors(where, ArrayInfo(name, array.shape, array.dtype.name))

    def vectors(size: int) -> Iterator[NDArray[Any]]:
        for start in range(0, len(array), size):
            yield array[start : start + size]

    rows, dim = array.shape
    return PairSide(name, where, rows, dim, array.dtype, vectors, called)


def side_in_file(name: SideName, path: Path, column: str | None) -> PairSide:
    """A side in a file."""
    source = open_source(path, column)
    called = " ".join(filter(None, (source.column, source.metadata.get("model"))))
    return PairSide(name, str(path), source.rows, source.dim, source.dtype, source.vectors, called)


def joined(first: PairSide, second: PairSide) -> PairSide:
    """The rows of both, one after the other, under the name of the first."""
    if first.dim != second.dim:
        raise BadInput(
            f"'{first.called}' has {first.dim} dimensions and '{second.called}' {second.dim}",
            where=first.where,
            step="embed both with the same model",
        )

    def vectors(size: int) -> Iterator[NDArray[Any]]:
        rest: NDArray[Any] | None = None
        for piece in chain(first.vectors(size), second.vectors(size)):
            block = piece if rest is None else np.concatenate([rest, piece])
            if len(block) >= size:
                yield block[:size]
                block = block[size:]
            rest = block if len(block) else None
        if rest is not None:
            yield rest

    return replace(first, rows=first.rows + second.rows, vectors=vectors)


@dataclass(frozen=True, eq=False)
class Found:
    """What was found, under the name by which errors and reports call it."""

    name: str
    old: PairSide
    new: PairSide
    labels: Labels | None

    def batch_rows(self) -> int:
        """Rows of a batch that takes a bounded amount of memory, whatever the dimensions."""
        return max(1, _BATCH_BYTES // (4 * (self.old.dim + self.new.dim)))

    def blocks(self, size: int) -> Iterator[tuple[int, Vectors, Vectors]]:
        """All rows, good or bad, as (first row, old, new), `size` rows at a time."""
        start = 0
        for old, new in zip(self.old.vectors(size), self.new.vectors(size), strict=True):
            yield start, _float32(old), _float32(new)
            start += len(old)


def find_in_one(
    path: Path, names: tuple[str, str, str], labels: FilePath | None, use_labels: bool
) -> Found:
    """Old, new and perhaps labels as three arrays of one file."""
    present = {array.name for array in list_arrays(path)}
    old_name, new_name, labels_name = names
    absent = [name for name in (old_name, new_name) if name not in present]
    if absent:
        listed = ", ".join(str(array) for array in list_arrays(path)) or "nothing"
        raise BadInput(
            f"has no {' and no '.join(f'{name!r}' for name in absent)}, only {listed}",
            where=path,
            step="name the arrays with --old FILE:NAME --new FILE:NAME [--labels FILE:NAME]",
        )
    place = None if labels is None else split_name(labels)
    # Labels may be left out of a file, but not once the caller has named them.
    if place is None and (labels_name in present or labels_name != "labels"):
        place = (path, labels_name)
    found = Found(
        str(path),
        side_in_file("old", path, old_name),
        side_in_file("new", path, new_name),
        _labels(place) if use_labels else None,
    )
    if found.labels is None and (old_name, new_name) == ("old", "new") and present.issuperset(LOG):
        log = side_in_file("old", path, LOG[0]), side_in_file("new", path, LOG[1])
        return replace(found, old=joined(found.old, log[0]), new=joined(found.new, log[1]))
    return found


def find_in_several(
    old: FilePath | None, new: FilePath | None, labels: FilePath | None, use_labels: bool
) -> Found:
    """Old, new and perhaps labels in a file each."""
    if old is None or new is None:
        missing = " and ".join(name for name, x in (("old", old), ("new", new)) if x is None)
        raise BadInput(
            f"no {missing} vectors were named",
            step="name one file with 'old' and 'new', or both --old FILE and --new FILE",
        )
    old_side = side_in_file("old", *split_name(old))
    new_side = side_in_file("new", *split_name(new))
    name = old_side.where if old_side.where == new_side.where else f"{old} + {new}"
    place = None if labels is None else split_name(labels)
    return Found(name, old_side, new_side, _labels(place) if use_labels else None)


def _labels(place: tuple[Path, str | None] | None) -> Labels | None:
    if place is None:
        return None
    path, name = place
    return encode(read_values(path, name), path)


def _float32(x: NDArray[Any]) -> Vectors:
    # A float64 beyond float32's range becomes infinite here, and is then found as a bad row.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)
