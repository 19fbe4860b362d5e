"""Rows on their way in and out of a store, as Arrow batches and numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import BadInput
from crossfade.files.arrow import is_vector_type
from crossfade.stores.contract import TOKEN, Id


def matrix(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float32]:
    """A vector column as (rows, dim) float32, to be read; a row without a vector becomes zeros.

    >>> matrix(pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)))
    array([[1., 2.],
           [0., 0.]], dtype=float32)
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not is_vector_type(column.type):
        raise BadInput(f"a column of {column.type} is no vector column")
    if not pa.types.is_fixed_size_list(column.type):
        return _ragged(column)
    dim = column.type.list_size
    if not column.null_count and dim:
        # As it lies there, where it is of float32.
        found = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
        return np.asarray(found, np.float32)
    out = np.zeros((len(column), dim), np.float32)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    # flatten() leaves null rows out, whatever lies in their place.
    out[there] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    return out


def _ragged(column: pa.Array) -> NDArray[np.float32]:
    rows = column.to_pylist()
    lengths = {len(row) for row in rows if row is not None}
    if len(lengths) > 1:
        raise BadInput(f"vectors of {' and '.join(map(str, sorted(lengths)))} dimensions")
    dim = lengths.pop() if lengths else 0
    return np.array([[0.0] * dim if row is None else row for row in rows], np.float32)


def unusable(column: pa.Array, vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Rows of a vector column, and of the same as a matrix, that nothing can be made of.

    >>> column = pa.array([[1.0, 2.0], None, [0.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> unusable(column, matrix(column)).tolist()
    [False, True, True]
    """
    out = ~column.is_valid().to_numpy(zero_copy_only=False)
    out[list(bad_rows(vectors))] = True
    return np.asarray(out)


def id_list(column: pa.Array) -> list[Id]:
    """Ids as Python values.

    >>> id_list(pa.array(["a", "b"]))
    ['a', 'b']
    """
    out: list[Id] = column.to_pylist()
    return out


def ids_alone(name: str, ids: pa.Array) -> pa.RecordBatch:
    """Rows of which nothing was read but their ids.

    >>> ids_alone("id", pa.array([7])).schema.names
    ['id', 'crossfade_token']
    """
    return pa.RecordBatch.from_pydict({name: ids, TOKEN: pa.nulls(len(ids), pa.int64())})


def in_order(table: pa.Table, id_column: str, ids: Sequence[Id]) -> pa.RecordBatch:
    """The rows of a table in the order of `ids`; ids that are not there are left out.

    >>> table = pa.table({"id": [1, 2, 3], "x": ["a", "b", "c"]})
    >>> in_order(table, "id", [3, 9, 1])["x"].to_pylist()
    ['c', 'a']
    """
    row_of = {key: row for row, key in enumerate(table[id_column].to_pylist())}
    return one_batch(
        table.take(pa.array([row_of[key] for key in ids if key in row_of], pa.int64()))
    )


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as a single batch, also when it has no rows."""
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.array([], f.type) for f in table.schema], schema=table.schema
    )


def score(by: str, distance: float) -> float:
    """A distance as a similarity: cosine, inner product, or minus the squared distance.

    >>> score("cosine", 0.25), score("l2", 2.0)
    (0.75, -2.0)
    """
    return -distance if by == "l2" else 1.0 - distance


def similarities(distance: str, rows: NDArray[np.float32], query: NDArray[np.float32]) -> Any:
    """Scores of all rows for one query, for stores that search by brute force.

    >>> similarities("cosine", np.array([[2.0, 0.0]], "f4"), np.array([1.0, 0.0], "f4")).tolist()
    [1.0]
    """
    if distance == "dot":
        return rows @ query
    if distance == "l2":
        return -np.square(rows - query).sum(axis=1)
    lengths = np.linalg.norm(rows, axis=1) * max(float(np.linalg.norm(query)), 1e-30)
    return rows @ query / np.maximum(lengths, 1e-30)
