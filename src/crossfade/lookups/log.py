"""Queries of a log: one text per line, or a column of a Parquet or CSV file."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files.guards import file_size, reading

_TABLE = re.compile(r"(.*?\.(?:parquet|csv)):(.+)", re.I)


def read_log(source: str | Path, most: int, seed: int = 0) -> tuple[list[str], int]:
    """At most so many of the distinct queries by chance, and how many distinct ones there are.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.txt"
    >>> _ = path.write_text("red shoes\\n\\nred shoes\\nblue hat\\n")
    >>> read_log(path, 10)
    (['red shoes', 'blue hat'], 2)
    """
    rng = np.random.default_rng(seed)
    seen: set[int] = set()
    # The queries of the smallest random numbers, whatever their number turns out to be.
    kept: list[tuple[float, int, str]] = []
    for text in _texts(str(source)):
        text = text.strip()
        if not text or hash(text) in seen:
            continue
        seen.add(hash(text))
        entry = (-float(rng.random()), -len(seen), text)
        if len(kept) < most:
            heapq.heappush(kept, entry)
        else:
            heapq.heappushpop(kept, entry)
    if not seen:
        raise BadInput("holds no queries", where=source, step="give one text per line")
    return [text for _, _, text in sorted(kept, key=lambda one: -one[1])], len(seen)


def _texts(source: str) -> Iterator[str]:
    named = _TABLE.fullmatch(source)
    path = Path(named[1] if named else source)
    file_size(path)
    kind = path.suffix.lower()
    if kind in (".parquet", ".csv") and named is None:
        raise BadInput("which column?", where=source, step=f"name it as {source}:COLUMN")
    with reading(path):
        if named is None:
            yield from _lines(path)
            return
        try:
            yield from _column(path, named[2], kind)
        except pa.ArrowException as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(
                f"cannot be read ({said})", where=path, step="check the file and its encoding"
            ) from error


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise BadInput(
            f"is no UTF-8 text ({error.reason} at byte {error.start})",
            where=path,
            step="give one text per line, or FILE.parquet:COLUMN, FILE.csv:COLUMN",
        ) from None


def _column(path: Path, name: str, kind: str) -> Iterator[str]:
    if kind == ".csv":
        from pyarrow import csv

        with csv.open_csv(path) as reader:
            _check_column(path, name, reader.schema)
            for batch in reader:
                yield from _strings(path, name, batch[name])
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:
        _check_column(path, name, file.schema_arrow)
        for batch in file.iter_batches(columns=[name]):
            yield from _strings(path, name, batch[name])


def _check_column(path: Path, name: str, schema: pa.Schema) -> None:
    if name not in schema.names:
        raise BadInput(
            f"has no column {name!r}", where=path, step=f"name one of {', '.join(schema.names)}"
        )


def _strings(path: Path, name: str, column: pa.Array) -> Iterator[str]:
    kind = column.type
    if pa.types.is_null(kind):
        return
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise BadInput(f"{name!r} holds {kind}", where=path, step="name a column of texts")
    yield from (text for text in column.to_pylist() if text is not None)
