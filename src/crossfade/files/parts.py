"""A table in parts that can be read apart from each other: what others are given to work on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crossfade.errors import BadInput
from crossfade.files import is_folder, is_lance
from crossfade.files.contract import Source
from crossfade.remote import to_path

# Enough for a worker to be busy for longer than it takes to be told.
_BYTES = 64 << 20
_ROWS = 100_000


@dataclass(frozen=True)
class Part:
    """Some rows of a file or dataset, in their order: whole groups, or a stretch of a fragment."""

    path: str
    first: int
    """The number of the first row, within the file or dataset."""
    rows: int
    groups: tuple[int, ...] = ()
    fragment: int | None = None
    start: int = 0

    def source(self, column: str | None) -> Source:
        """The vectors of these rows."""
        path = to_path(self.path)
        if self.fragment is not None:
            from crossfade.files import lance

            return lance.part_source(path, column, self.fragment, self.start, self.rows)
        from crossfade.files import parquet

        return parquet.part_source(path, column, self.groups)


def parts_of(path: str | Path) -> list[Part]:
    """The parts of a Parquet file, of a folder of them, or of a Lance dataset, in their order."""
    path = to_path(path)
    if is_folder(path):
        from crossfade.files.folder import parquet_files

        return [part for file in parquet_files(path) for part in _of_file(file)]
    if is_lance(path):
        return _of_dataset(path)
    if path.suffix.lower() == ".parquet":
        return _of_file(path)
    raise BadInput(
        "cannot be read in parts",
        where=path,
        step="give a Parquet file, a folder of them or a Lance table, or use --engine local",
    )


def _of_file(path: Path) -> list[Part]:
    from crossfade.files import parquet

    out: list[Part] = []
    groups: list[int] = []
    first = rows = held = 0
    for number, (count, size) in enumerate(parquet.row_groups(path)):
        groups.append(number)
        rows, held = rows + count, held + size
        if held >= _BYTES:
            out.append(Part(str(path), first, rows, tuple(groups)))
            first, rows, held, groups = first + rows, 0, 0, []
    if groups:
        out.append(Part(str(path), first, rows, tuple(groups)))
    return out


def _of_dataset(path: Path) -> list[Part]:
    from crossfade.files import lance

    out: list[Part] = []
    first = 0
    for number, rows in lance.fragments(path):
        for start in range(0, rows, _ROWS):
            count = min(_ROWS, rows - start)
            out.append(Part(str(path), first + start, count, fragment=number, start=start))
        first += rows
    return out
