"""`.npy`: one array, which as a column is called `vector`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from numpy.lib import format as npy_format

from crossfade.files.choice import check_values, choose, only
from crossfade.files.contract import ArrayInfo, Layout, Source
from crossfade.files.guards import file_size, reading
from crossfade.files.npyheader import NpyHeader, read_header, read_values
from crossfade.files.rawrows import (
    as_batches,
    read_rows,
    read_rows_of_columns,
    vector_schema,
    write_rows,
)

NAME = "vector"


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The one array of the file."""
    return (_header(path).info(NAME),)


def source(path: Path, column: str | None) -> Source:
    """The array as a stream of rows."""
    header = _header(path)
    choose(path, (header.info(NAME),), column)
    rows, dim = header.shape
    schema = vector_schema(NAME, dim, header.dtype)
    return Source(
        path=path,
        column=NAME,
        rows=rows,
        dim=dim,
        dtype=header.dtype.newbyteorder("="),
        schema=schema,
        reader=partial(_read, path, header, schema),
    )


def values(path: Path, name: str | None) -> pa.Array:
    """The array, which has to be one-dimensional."""
    header = _header(path)
    info = only(path, (header.info(NAME),), name)
    check_values(path, info)
    with reading(path), path.open("rb") as file:
        file.seek(header.offset)
        return read_values(file, header, path, path.stem, file_size(path))


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write the vectors as one array in C order."""
    with path.open("xb") as file:
        npy_format.write_array_header_1_0(file, header_of(layout))
        write_rows(file.write, batches, layout)


def header_of(layout: Layout) -> dict[str, object]:
    """The header of an array of the layout's vectors, as numpy writes it."""
    return {
        "shape": (layout.rows, layout.dim),
        "fortran_order": False,
        "descr": npy_format.dtype_to_descr(layout.dtype.newbyteorder("<")),
    }


def _header(path: Path) -> NpyHeader:
    size = file_size(path)
    with reading(path), path.open("rb") as file:
        return read_header(file, size, path)


def _read(
    path: Path, header: NpyHeader, schema: pa.Schema, size: int, _vectors_only: bool
) -> Iterator[pa.RecordBatch]:
    shape = (header.shape[0], header.shape[1])
    with reading(path), path.open("rb", buffering=0) as file:
        file.seek(header.offset)
        blocks = (
            read_rows_of_columns(file, header.offset, shape, header.dtype, size, path)
            if header.fortran
            else read_rows(file, shape, header.dtype, size, path)
        )
        yield from as_batches(blocks, schema)
