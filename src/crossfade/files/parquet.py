"""`.parquet`: a table whose vector column is a list of floats; the other columns are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crossfade.errors import BadInput
from crossfade.files.choice import check_values, only
from crossfade.files.contract import ArrayInfo, Layout, Source
from crossfade.files.guards import check_unpacked, file_size, reading
from crossfade.files.rawrows import check_rows
from crossfade.files.table import infos, table_source, whole_column

_BUFFER = 1 << 20


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The columns of the table."""
    with _opened(path) as file:
        return infos(file.schema_arrow, file.metadata.num_rows)


def source(path: Path, column: str | None) -> Source:
    """One list column as vectors."""
    with _opened(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    return table_source(path, column, schema, rows, partial(_scan, path))


def row_groups(path: Path) -> list[tuple[int, int]]:
    """How many rows each group of rows has, and how many bytes they are."""
    with _opened(path) as file:
        groups = (file.metadata.row_group(g) for g in range(file.metadata.num_row_groups))
        return [(group.num_rows, group.total_byte_size) for group in groups]


def part_source(path: Path, column: str | None, groups: Sequence[int]) -> Source:
    """One list column of some groups of rows."""
    with _opened(path) as file:
        schema = file.schema_arrow
        rows = sum(file.metadata.row_group(g).num_rows for g in groups)
    return table_source(path, column, schema, rows, partial(_scan, path, groups=groups))


def values(path: Path, name: str | None) -> pa.Array:
    """One column, whole."""
    with _opened(path) as file:
        info = only(path, infos(file.schema_arrow, file.metadata.num_rows), name)
        check_values(path, info)
        kind = file.schema_arrow.field(info.name).type
        _check_packing(path, info.name, file.metadata)
    text = [info.name] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else []
    return whole_column(path, info.name, _scan(path, 1 << 16, [info.name], text), kind)


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write the table, a row group for each batch so that no more than a batch is held."""
    others = [name for name in layout.schema.names if name != layout.column]
    rows = 0
    # Vectors hardly ever repeat a number: a dictionary or statistics of them only cost time.
    with (
        path.open("xb") as file,
        pq.ParquetWriter(
            file, layout.schema, use_dictionary=others or False, write_statistics=others or False
        ) as writer,
    ):
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch], layout.schema))
            rows += batch.num_rows
        check_rows(rows, layout)


def _check_packing(path: Path, name: str, metadata: pq.FileMetaData) -> None:
    """Raise if the column takes far more memory than its bytes in the file, by what it says."""
    for place in range(metadata.num_columns):
        chunks = [metadata.row_group(g).column(place) for g in range(metadata.num_row_groups)]
        if chunks and chunks[0].path_in_schema == name:
            unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
            packed = sum(chunk.total_compressed_size for chunk in chunks)
            check_unpacked(path, name, unpacked, packed)


@contextmanager
def _opened(path: Path, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    file_size(path)
    with reading(path):
        try:
            # A small buffer and nothing fetched ahead: a row group is read as it is decoded, and
            # what was fetched ahead would be kept until the whole file is read.
            with (
                path.open("rb") as raw,
                pq.ParquetFile(
                    raw,
                    buffer_size=_BUFFER,
                    pre_buffer=False,
                    read_dictionary=list(dictionaries),
                ) as file,
            ):
                yield file
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BadInput(
                f"is not a parquet file, or is damaged ({_first_line(error)})",
                where=path,
                step="copy or write it again",
            ) from error


def _scan(
    path: Path,
    size: int,
    columns: list[str] | None,
    dictionaries: Sequence[str] = (),
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    with _opened(path, dictionaries) as file:
        chosen = None if groups is None else list(groups)
        yield from file.iter_batches(batch_size=size, row_groups=chosen, columns=columns)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
