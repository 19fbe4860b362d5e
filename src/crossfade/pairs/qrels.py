"""Judgements in files: rows of query index, item index and perhaps a grade."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files import ArrayInfo, list_arrays, read_values, split_name
from crossfade.files.choice import named
from crossfade.files.guards import check_unpacked, file_size, reading

COLUMNS = ("query", "item", "grade")
NAME = "qrels"
_NUMBERS = tuple(f"{word}{bits}" for word in ("int", "uint", "float") for bits in (8, 16, 32, 64))


def read_qrels(place: str | Path) -> NDArray[Any]:
    """Judgements as an array (rows, 2 or 3).

    From npy, npz and safetensors an array of that shape, `FILE:NAME` or the one called `qrels`;
    from Parquet and Lance the columns `query`, `item` and perhaps `grade`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "qrels.npy"
    >>> np.save(path, [[0, 5, 1], [0, 7, 2]])
    >>> read_qrels(path).shape
    (2, 3)
    """
    path, name = split_name(place)
    found = list_arrays(path)
    if path.suffix.lower() in (".parquet", ".lance"):
        return _columns(path, {array.name for array in found})
    with reading(path):
        return _array(path, name or NAME, found)


def _array(path: Path, name: str, found: Sequence[ArrayInfo]) -> NDArray[Any]:
    kind = path.suffix.lower()
    info = found[0] if kind == ".npy" else named(path, found, name)
    if len(info.shape) != 2 or info.dtype not in _NUMBERS:
        raise BadInput(
            f"{info} is no list of judgements",
            where=path,
            step="give numbers: a row of query, item and perhaps a grade for each",
        )
    nbytes = math.prod(size or 0 for size in info.shape) * np.dtype(info.dtype).itemsize
    check_unpacked(path, info.name, nbytes, file_size(path))
    if kind == ".npy":
        return np.asarray(np.load(path, allow_pickle=False))
    if kind == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])
    from safetensors import safe_open

    with safe_open(path, "np") as tensors:
        return np.asarray(tensors.get_tensor(name))


def _columns(path: Path, present: set[str]) -> NDArray[Any]:
    absent = [name for name in COLUMNS[:2] if name not in present]
    if absent:
        raise BadInput(
            f"has no column {absent[0]!r}",
            where=path,
            step="name the columns query, item and, where there are any, grade",
        )
    columns: list[pa.Array] = [read_values(path, c) for c in COLUMNS if c in present]
    return np.stack([np.asarray(c.cast(pa.float64())) for c in columns], axis=1)
