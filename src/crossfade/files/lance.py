"""`.lance`: a dataset in a folder; the vector column is a list of floats, the others are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from crossfade.errors import BadInput, MissingExtra
from crossfade.files.choice import check_values, only
from crossfade.files.contract import ArrayInfo, Layout, Source
from crossfade.files.rawrows import check_rows
from crossfade.files.table import infos, table_source, whole_column

_READ_AHEAD_BYTES = 64 << 20  # Lance's own default of 2 GiB is more than a whole run may take.


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The columns of the dataset."""
    with _opened(path) as dataset:
        return infos(dataset.schema, dataset.count_rows())


def source(path: Path, column: str | None) -> Source:
    """One list column as vectors."""
    with _opened(path) as dataset:
        schema, rows = dataset.schema, dataset.count_rows()
    return table_source(path, column, schema, rows, partial(_scan, path))


def values(path: Path, name: str | None) -> pa.Array:
    """One column, whole."""
    with _opened(path) as dataset:
        info = only(path, infos(dataset.schema, dataset.count_rows()), name)
        check_values(path, info)
        kind = dataset.schema.field(info.name).type
    return whole_column(path, info.name, _scan(path, 1 << 16, [info.name]), kind)


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write the dataset as one new version, the first where there is none yet."""
    lance = _library("writing Lance files")
    raised: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            for batch in batches:
                yield batch
                rows += batch.num_rows
            check_rows(rows, layout)
        except Exception as error:
            # The library passes on only the text of an error in its input: keep the error itself.
            raised.append(error)
            raise

    try:
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(layout.schema, watched()), str(path), mode="overwrite"
        )
    except Exception as error:
        raise (raised[0] if raised else error) from None


def _library(need: str) -> ModuleType:
    try:
        import lance
    except ImportError as error:
        raise MissingExtra("pylance", extra="lance", need=need) from error
    module: ModuleType = lance
    return module


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    lance = _library("reading Lance files")
    if not path.exists():
        raise BadInput("no such folder", where=path, step="check the path")
    if not path.is_dir():
        raise BadInput("is not the folder of a Lance dataset", where=path, step="name the folder")
    try:
        yield lance.dataset(str(path))
    except (ValueError, OSError) as error:
        raise BadInput(
            f"is not a Lance dataset, or is damaged ({str(error).splitlines()[0]})",
            where=path,
            step="copy or write it again",
        ) from error


def fragments(path: Path) -> list[tuple[int, int]]:
    """The numbers of its fragments, each with how many rows it has."""
    with _opened(path) as dataset:
        return [(part.fragment_id, part.count_rows()) for part in dataset.get_fragments()]


def part_source(path: Path, column: str | None, fragment: int, start: int, rows: int) -> Source:
    """Some rows of one fragment."""
    with _opened(path) as dataset:
        schema = dataset.schema
    return table_source(
        path, column, schema, rows, partial(_scan, path, fragment=fragment, start=start, rows=rows)
    )


def _scan(
    path: Path,
    size: int,
    columns: list[str] | None,
    fragment: int | None = None,
    start: int | None = None,
    rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    with _opened(path) as dataset:
        yield from dataset.scanner(
            fragments=None if fragment is None else [dataset.get_fragment(fragment)],
            offset=start,
            limit=rows,
            columns=columns,
            batch_size=size,
            io_buffer_size=_READ_AHEAD_BYTES,
            batch_readahead=2,
            fragment_readahead=1,
            scan_in_order=True,
        ).to_batches()
