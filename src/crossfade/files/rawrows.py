"""Rows that lie one after another as plain numbers, read a block at a time.

Blocks are read, not mapped: pages of a mapped file count as resident memory of the process, and
a gallery larger than the memory it is given must still go through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files.arrow import to_arrow, to_numpy
from crossfade.files.contract import Layout
from crossfade.files.guards import truncated

Array = np.ndarray[Any, np.dtype[Any]]


def read_rows(
    stream: Any, shape: tuple[int, int], dtype: np.dtype[Any], size: int, path: Path
) -> Iterator[Array]:
    """Blocks of at most `size` rows of an array in C order that begins where `stream` stands."""
    rows, dim = shape
    for start in range(0, rows, size):
        block = np.empty((min(size, rows - start), dim), dtype)
        _fill(stream, block, path, start)
        yield native(block)


def read_rows_of_columns(
    stream: Any,
    offset: int,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    size: int,
    path: Path,
) -> Iterator[Array]:
    """Blocks of at most `size` rows of an array in Fortran order that begins at `offset`."""
    rows, dim = shape
    for start in range(0, rows, size):
        block = np.empty((dim, min(size, rows - start)), dtype)
        for column in range(dim):
            stream.seek(offset + (column * rows + start) * dtype.itemsize)
            _fill(stream, block[column], path, start)
        yield np.ascontiguousarray(native(block).T)


def native(block: Array) -> Array:
    """The same numbers in this machine's byte order."""
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def as_batches(blocks: Iterable[Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Blocks of vectors as record batches of the one column of `schema`."""
    for block in blocks:
        yield pa.RecordBatch.from_arrays([to_arrow(block)], schema=schema)


def vector_schema(
    column: str, dim: int, dtype: np.dtype[Any], metadata: dict[str, str] | None = None
) -> pa.Schema:
    """A schema of one vector column."""
    kind = pa.list_(pa.from_numpy_dtype(dtype.newbyteorder("=")), dim)
    return pa.schema([pa.field(column, kind)], metadata=metadata or None)


def write_rows(
    write: Callable[[Any], object], batches: Iterable[pa.RecordBatch], layout: Layout
) -> None:
    """Write the vectors of all batches in C order, little-endian."""
    rows = 0
    for batch in batches:
        block = to_numpy(batch.column(layout.column))
        write(_bytes_of(block.astype(layout.dtype.newbyteorder("<"), order="C", copy=False)))
        rows += len(block)
    check_rows(rows, layout)


def check_rows(rows: int, layout: Layout) -> None:
    """Raise unless as many rows came as the header promises."""
    if rows != layout.rows:
        raise BadInput(
            f"the input gave {rows} rows where {layout.rows} were announced",
            step="make sure that nothing else writes to the input meanwhile",
        )


def copy_chunks(stream: Any, nbytes: int, path: Path) -> Iterator[bytes]:
    """The next `nbytes` bytes of `stream`, a piece at a time."""
    left = nbytes
    while left:
        chunk = stream.read(min(left, 1 << 20))
        if not chunk:
            raise truncated(path, f"{left} bytes are missing")
        left -= len(chunk)
        yield chunk


def _fill(stream: Any, block: Array, path: Path, start: int) -> None:
    view = _bytes_of(block)
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise truncated(path, f"it ends within the block of rows that begins with row {start}")
        done += count


def _bytes_of(block: Array) -> memoryview:
    return block.reshape(-1).view(np.uint8).data
