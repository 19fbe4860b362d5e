"""Some rows of a Parquet file, by their number, with a few thousand decoded at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.errors import BadInput, StoreError
from crossfade.remote import RemotePath

Rows = NDArray[np.int64]
Signature = tuple[int, int, int]
_TOGETHER = 8192
_BUFFER = 1 << 20


WRITTEN_ONCE: Signature = (0, 0, 0)
"""Of an object whose name is of itself alone."""


class Changed(Exception):
    """A file is no longer the one that was listed: whoever meets this lists again."""


def hold(path: Path, expected: Signature) -> Any:
    """A file that stays readable, and the same, whoever replaces or deletes its name meanwhile.

    `Changed` if it is gone or not the `expected` one.
    """
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise Changed from None
    if isinstance(path, RemotePath):
        # It may be written anew while it is read: `opened` looks again in the end.
        return raw
    if signature(path, raw.fileno()) != expected:
        raw.close()
        raise Changed
    return raw


@contextmanager
def opened(path: Path, expected: Signature, *, step: str, held: Any = None) -> Iterator[Any]:
    """A Parquet file for reading, from a handle of `hold` if there is one."""
    try:
        with nullcontext(held) if held is not None else hold(path, expected) as raw:
            raw.seek(0)
            file = pq.ParquetFile(raw, buffer_size=_BUFFER, pre_buffer=False)
            yield file
        _check_same(path, expected)
    except (pa.ArrowException, OSError) as error:
        _check_same(path, expected)
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreError(f"cannot be read ({error.strerror})", where=path) from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"is not a parquet file, or is damaged ({reason})", where=path, step=step
        ) from error


def _check_same(path: Path, expected: Signature) -> None:
    """`Changed` if an object was written anew while it was read."""
    if isinstance(path, RemotePath) and expected != WRITTEN_ONCE:
        try:
            same = signature(path) == expected
        except FileNotFoundError:
            same = False
        if not same:
            raise Changed


def signature(path: Path, handle: int | None = None) -> Signature:
    """What changes when a file is replaced or written: inode, time of change in ns, size; of an
    object its service's mark and its size."""
    if isinstance(path, RemotePath):
        mark, size = path.mark()
        return mark, 0, size
    found = path.stat() if handle is None else os.fstat(handle)
    return found.st_ino, found.st_mtime_ns, found.st_size


def take(file: Any, rows: Rows, columns: Sequence[str]) -> pa.Table:
    """The given rows of an open file, in the order given.

    >>> import io
    >>> held = io.BytesIO()
    >>> pq.write_table(pa.table({"x": [0, 10, 20, 30]}), held, row_group_size=3)
    >>> take(pq.ParquetFile(held), np.array([3, 0]), ["x"])["x"].to_pylist()
    [30, 0]
    """
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    parts: list[pa.RecordBatch] = []
    for group in np.unique(np.searchsorted(edges, wanted, "right") - 1):
        low, high = np.searchsorted(wanted, [edges[group], edges[group + 1]])
        inside = wanted[low:high] - edges[group]
        start = 0
        for batch in file.iter_batches(_TOGETHER, row_groups=[int(group)], columns=list(columns)):
            first, last = np.searchsorted(inside, [start, start + len(batch)])
            if last > first:
                parts.append(batch.take(pa.array(inside[first:last] - start)))
            start += len(batch)
            if last == len(inside):
                break
    schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    if not parts:
        return schema.empty_table()
    table = pa.Table.from_batches(parts).unify_dictionaries()
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return table.select(list(columns)).take(pa.array(back))


def scan(file: Any, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """All rows of an open file as (number of the first, batch)."""
    start = 0
    for batch in file.iter_batches(_TOGETHER, columns=list(columns)):
        yield start, batch
        start += len(batch)


def places(ids: pa.Array, among: pa.Array) -> Rows:
    """Where each id stands in `among`, −1 if it does not.

    >>> places(pa.array([7, 5]), pa.array([5, 6])).tolist()
    [-1, 0]
    """
    found = pc.fill_null(pc.index_in(ids, value_set=among), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def id_array(column: Any) -> pa.Array:
    """Ids of any integer or text type as int64 or text, so that files with different ones agree."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.string())


def vectors(column: Any, dim: int, where: object) -> pa.Array:
    """A list column of any float type as lists of `dim` float32; null stays null.

    >>> vectors(pa.array([[1.0, 2.0], None]), 2, "a.parquet").type
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = pa.list_(pa.float32(), dim)
    if column.type == kind:
        return column
    there = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths[there] != dim).any():
        other = int(lengths[there][lengths[there] != dim][0])
        raise BadInput(
            f"has vectors of {other} and of {dim} dimensions",
            where=where,
            step="keep vectors of one model in the folder",
        )
    filled = np.zeros((len(column), dim), np.float32)
    filled[there] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(filled.reshape(-1)), dim, mask=pa.array(~there)
    )
