"""A column that is put on the disk as it comes, and then read where it lies.

A hundred million ids are as many as memory holds, but not beside anything else. Mapped from a file,
they are read where they are asked for, and memory keeps what it has room for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files import read_values, split_name

_LONG, _PIECE = 1 << 22, 1 << 20


class SpilledColumn:
    """Whole numbers, strings or floats, without a missing one, in files of a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     column = SpilledColumn(Path(folder), "id")
    ...     column.add(pa.array(["b", "a"]))
    ...     column.add(pa.array(["c"]))
    ...     column.values().take(pa.array([2, 0])).to_pylist()
    ['c', 'b']
    """

    def __init__(self, folder: Path, name: str, where: object = None) -> None:
        self._data, self._ends = folder / f"{name}.data", folder / f"{name}.ends"
        self._name, self._where = name, where
        self._kind: pa.DataType | None = None
        self._rows = self._bytes = 0
        self._data.touch()
        np.zeros(1, np.int64).tofile(self._ends)

    def __len__(self) -> int:
        return self._rows

    def add(self, column: pa.Array) -> None:
        """More values."""
        if not len(column):
            return
        if column.null_count:
            row = self._rows + int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise BadInput(f"row {row} has no {self._name}", where=self._where)
        kind = _kind(column.type)
        if kind is None or self._kind not in (None, kind):
            raise BadInput(f"{self._name}s are {column.type}", where=self._where)
        self._kind = kind
        column = column.cast(kind)
        if pa.types.is_large_string(kind):
            _, ends, data = column.buffers()
            found = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
            letters = memoryview(data or b"")[found[0] : found[-1]]
            self._append(self._ends, found[1:] - found[0] + self._bytes)
            with self._data.open("ab") as file:
                file.write(letters)
            self._bytes += len(letters)
        else:
            self._append(self._data, np.asarray(column))
        self._rows += len(column)

    def values(self) -> pa.Array:
        """All of it as Arrow sees it; there until the folder goes."""
        kind = self._kind or pa.int64()
        data = _mapped(self._data)
        if pa.types.is_large_string(kind):
            return pa.LargeStringArray.from_buffers(self._rows, _mapped(self._ends), data)
        return pa.Array.from_buffers(kind, self._rows, [None, data])

    def _append(self, path: Path, values: NDArray[Any]) -> None:
        with path.open("ab") as file:
            values.tofile(file)


@contextmanager
def read_long(place: str | Path, beside: Path) -> Iterator[pa.Array]:
    """One value per row, FILE or FILE:NAME, of which there may be more than memory should hold.

    A column of a large Parquet file lies in a folder beside `beside` meanwhile; what other formats
    hold is read as it is.
    """
    path, name = split_name(place)
    columns = _columns_of_long(path)
    name = columns[0] if name is None and len(columns) == 1 else name
    if name not in columns:
        yield read_values(path, name)
        return
    with tempfile.TemporaryDirectory(dir=beside.parent, prefix=f".{beside.name}-") as folder:
        column = SpilledColumn(Path(folder), "id", place)
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_PIECE, columns=[name]):
                column.add(batch.column(0))
        yield column.values()


def _columns_of_long(path: Path) -> list[str]:
    """The columns of a Parquet file that is long; none of any other, or of what is no such file."""
    try:
        with pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names) if file.metadata.num_rows >= _LONG else []
    except (OSError, pa.ArrowException):
        # Whoever reads it says what is wrong with it.
        return []


def _kind(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.large_string() if is_text else None


def _mapped(path: Path) -> pa.Buffer:
    if not path.stat().st_size:
        return pa.py_buffer(b"")
    return pa.py_buffer(np.memmap(path, np.uint8, "r"))
