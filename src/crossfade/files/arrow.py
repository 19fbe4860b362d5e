"""Vectors as an Arrow column and as a numpy array, the one a view of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossfade.errors import BadRow

_NULL_STEP = "drop the row, or embed it"


def to_numpy(column: pa.Array) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
    """A fixed-size-list column as an (m, dim) array, without a copy.

    >>> to_numpy(to_arrow(np.eye(2, dtype=np.float16)))
    array([[1., 0.],
           [0., 1.]], dtype=float16)
    """
    values = column.flatten().to_numpy(zero_copy_only=True)
    return np.asarray(values).reshape(len(column), column.type.list_size)


def to_arrow(vectors: np.ndarray[tuple[int, int], np.dtype[Any]]) -> pa.Array:
    """An (m, dim) float array as a fixed-size-list column, without a copy if it is contiguous.

    >>> to_arrow(np.zeros((3, 2), dtype=np.float32)).type
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    vectors = np.ascontiguousarray(vectors)
    flat = pa.Array.from_buffers(
        pa.from_numpy_dtype(vectors.dtype), vectors.size, [None, pa.py_buffer(vectors)]
    )
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])


def is_vector_type(kind: pa.DataType) -> bool:
    """Whether a column of this type holds a list of floats in each row."""
    is_list = (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )
    return bool(is_list and pa.types.is_floating(kind.value_type))


def as_fixed_size(column: pa.Array, dim: int, *, start: int, where: Path, name: str) -> pa.Array:
    """A list column as a fixed-size list of `dim` values with no null in it.

    `start` is the file's row at which `column` begins, so that an error can name the file's row.
    """
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRow(start + row, "is null", where=where, side=name, step=_NULL_STEP)
    if not pa.types.is_fixed_size_list(column.type):
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        other = np.flatnonzero(lengths != dim)
        if len(other):
            row = int(other[0])
            raise BadRow(
                start + row,
                f"has {lengths[row]} values where row 0 has {dim}",
                where=where,
                side=name,
                step="vectors of one column need one length: re-embed the row with the same model",
            )
    values = column.flatten()
    if values.null_count:
        first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRow(
            start + first // dim, "has a null value", where=where, side=name, step=_NULL_STEP
        )
    if pa.types.is_fixed_size_list(column.type):
        return column
    return pa.FixedSizeListArray.from_arrays(values, dim)
