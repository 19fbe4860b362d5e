"""A folder of Parquet files with the same columns, read as one table: file after file, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files import parquet
from crossfade.files.contract import ArrayInfo, Layout, Source


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a folder; a name with a dot or an underscore first is none of them."""
    found = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() == ".parquet" and file.name[0] not in "._"
    )
    if not found:
        raise BadInput(
            "is a folder without Parquet files", where=path, step="name a file, or another folder"
        )
    return found


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The columns of its files, with the rows of all of them."""
    listed = [parquet.arrays(file) for file in parquet_files(path)]
    rows = sum(int(infos[0].shape[0] or 0) for infos in listed if infos)
    return tuple(replace(info, shape=(rows, *info.shape[1:])) for info in listed[0])


def source(path: Path, column: str | None) -> Source:
    """One list column of all files."""
    parts = [parquet.source(file, column) for file in parquet_files(path)]
    first = parts[0]
    for part in parts[1:]:
        if not part.schema.equals(first.schema):
            raise BadInput(
                f"has other columns than {first.path.name}",
                where=part.path,
                step="give files of one table",
            )

    def read(size: int, vectors_only: bool) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from part.reader(size, vectors_only)

    rows = sum(part.rows for part in parts)
    return replace(first, path=path, rows=rows, reader=read)


def values(path: Path, name: str | None) -> pa.Array:
    """One column of all files, whole."""
    return pa.concat_arrays([parquet.values(file, name) for file in parquet_files(path)])


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """A folder is written a file at a time by those who know which rows belong together."""
    raise BadInput("is a folder", where=path, step="name a file")
