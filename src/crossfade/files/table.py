"""What parquet and lance share: a schema of columns, and batches that carry all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files.arrow import as_fixed_size, is_vector_type
from crossfade.files.choice import check_lengths, check_vectors, choose
from crossfade.files.contract import ArrayInfo, Source

Scan = Callable[[int, list[str] | None], Iterator[pa.RecordBatch]]
"""Batches of at most so many rows, of these columns or of all."""


def infos(schema: pa.Schema, rows: int) -> tuple[ArrayInfo, ...]:
    """The columns as arrays; lists are two-dimensional."""
    return tuple(_info(field, rows) for field in schema)


def table_source(
    path: Path, column: str | None, schema: pa.Schema, rows: int, scan: Scan
) -> Source:
    """The vectors of a table, its other columns in the same batches."""
    chosen = choose(path, infos(schema, rows), column)
    field = schema.field(chosen.name)
    dim = chosen.shape[1]
    if dim is None:
        dim = _first_length(scan, chosen.name)
        check_vectors(path, ArrayInfo(chosen.name, (rows, dim), chosen.dtype))
    if not pa.types.is_fixed_size_list(field.type):
        field = field.with_type(pa.list_(field.type.value_type, dim))
    place = schema.get_field_index(chosen.name)
    schema = schema.set(place, field)

    def read(size: int, vectors_only: bool) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([field]) if vectors_only else schema
        start = 0
        for batch in scan(size, [chosen.name] if vectors_only else None):
            column = as_fixed_size(
                batch.column(chosen.name), dim, start=start, where=path, name=chosen.name
            )
            start += batch.num_rows
            columns = [
                column if name == chosen.name else batch.column(name) for name in wanted.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    return Source(
        path=path,
        column=chosen.name,
        rows=rows,
        dim=dim,
        dtype=np.dtype(chosen.dtype),
        schema=schema,
        reader=read,
    )


def whole_column(
    path: Path, name: str, batches: Iterable[pa.RecordBatch], kind: pa.DataType
) -> pa.Array:
    """All values of a column of whole numbers, floats or strings; nulls stay nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (_is_text(kind) or _is_number(kind)):
        raise BadInput(f"'{name}' holds {kind}", where=path, step="give whole numbers or strings")
    found = []
    for batch in batches:
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            # Before each row has a copy of it.
            check_lengths(path, name, column.dictionary)
        found.append(column.cast(kind))
    return pa.chunked_array(found, kind).combine_chunks()


def _info(field: pa.Field, rows: int) -> ArrayInfo:
    kind = field.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        dim = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        value = kind.value_type
        name = np.dtype(value.to_pandas_dtype()).name if is_vector_type(kind) else str(value)
        return ArrayInfo(field.name, (rows, dim), name)
    return ArrayInfo(field.name, (rows,), str(kind))


def _first_length(scan: Scan, name: str) -> int:
    for batch in scan(1, [name]):
        first = batch.column(name)[0].as_py()
        return 0 if first is None else len(first)
    return 0


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    )
