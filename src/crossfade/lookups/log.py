"""Queries of a log: texts, vectors that were stored while both models were there, or both."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import BadInput, BadRow
from crossfade.files import ArrayInfo, Source, list_arrays, open_source
from crossfade.files.guards import file_size, reading
from crossfade.pairs.files import SideName

Float = NDArray[np.float32]
SIDES: tuple[SideName, ...] = ("old", "new")
_NAMED = re.compile(r"(.*?\.(?:parquet|csv|npz|safetensors)):(.+)", re.I)
_WITH_VECTORS = (".parquet", ".npz", ".safetensors")
_READ_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Log:
    """The queries that were drawn of a log."""

    name: str
    rows: NDArray[np.int64]
    """Their places in the file."""
    texts: list[str]
    """Their texts; empty where both models' vectors are stored."""
    vectors: dict[SideName, Source]
    """What is stored of them; the other side has to be embedded."""
    distinct: int
    """How many distinct queries the file has."""

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, side: SideName) -> Iterator[Float]:
        """The stored vectors of this side, in the order of the rows."""
        for start, x in _blocks(self.vectors[side]):
            first, last = np.searchsorted(self.rows, [start, start + len(x)])
            if first < last:
                yield x[self.rows[first:last] - start]


class LogFile:
    """A log before it is read: one text per line, FILE.csv:COLUMN, FILE.parquet:COLUMN, or a
    .parquet, .npz or .safetensors file with vectors under `old`, `new`, or both.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.npz"
    >>> np.savez(path, old=np.eye(3, 2) + 1, queries=["red shoes", "red shoes", "blue hat"])
    >>> log = LogFile(f"{path}:queries").sample(10)
    >>> log.texts, list(log.vectors), log.rows.tolist(), log.distinct
    (['red shoes', 'blue hat'], ['old'], [0, 2], 2)
    """

    def __init__(self, source: str | Path) -> None:
        found = _NAMED.fullmatch(str(source))
        self.name = str(source)
        self.path = Path(found[1] if found else source)
        self.vectors: dict[SideName, Source] = {}
        self._column = found[2] if found else None
        self._kind = self.path.suffix.lower()
        self._arrays: tuple[ArrayInfo, ...] = ()
        if self._kind in _WITH_VECTORS:
            self._arrays = list_arrays(self.path)
            # A column of another shape is the log's own, whatever its name.
            held = {one.name for one in self._arrays if len(one.shape) == 2}
            self.vectors = {side: open_source(self.path, side) for side in SIDES if side in held}
        self._check()

    @property
    def missing(self) -> tuple[SideName, ...]:
        """The sides of which nothing is stored."""
        return tuple(side for side in SIDES if side not in self.vectors)

    def sample(self, most: int, seed: int = 0) -> Log:
        """At most so many of the distinct queries by chance."""
        for side, source in self.vectors.items():
            _refuse_bad_rows(self.path, side, source)
        rng = np.random.default_rng(seed)
        seen: set[int] = set()
        # The queries of the smallest random numbers, whatever their number turns out to be.
        kept: list[tuple[float, int, int, str]] = []
        for row, what, text in self._queries():
            if what in seen:
                continue
            seen.add(what)
            entry = (-float(rng.random()), -len(seen), row, text)
            if len(kept) < most:
                heapq.heappush(kept, entry)
            else:
                heapq.heappushpop(kept, entry)
        if not seen:
            raise BadInput("holds no queries", where=self.name, step="give one text per line")
        kept.sort(key=lambda one: one[2])
        rows = np.array([row for _, _, row, _ in kept], np.int64)
        texts = [text for _, _, _, text in kept] if self.missing else []
        return Log(self.name, rows, texts, self.vectors, len(seen))

    def _queries(self) -> Iterator[tuple[int, int, str]]:
        """Of each query its row, what tells it from others, and its text."""
        if self.missing:
            for row, text in enumerate(self._texts()):
                text = "" if text is None else text.strip()
                if text:
                    yield row, hash(text), text
            return
        for start, x in _blocks(self.vectors["old"]):
            yield from ((start + at, hash(one.tobytes()), "") for at, one in enumerate(x))

    def _check(self) -> None:
        """Whether the file can have what is missing, and as many of it."""
        rows: dict[str, int] = {side: source.rows for side, source in self.vectors.items()}
        if self.missing and self._kind == ".safetensors":
            lacks = " and no ".join(f"{side!r}" for side in self.missing)
            raise BadInput(
                f"has no {lacks} vectors, and a .safetensors file holds no texts",
                where=self.path,
                step="give 'old' and 'new', or texts beside 'old' in a .parquet or .npz file",
            )
        if self.missing and self._column is None and self._kind in (".csv", *_WITH_VECTORS):
            raise BadInput(
                "which column?", where=self.name, step=f"name the texts as {self.path}:COLUMN"
            )
        if self.missing and self._kind == ".npz":
            held = {one.name: one for one in self._arrays}
            if self._column not in held:
                raise self._no_column(list(held))
            rows[self._column] = held[self._column].shape[0] or 0
        if len(set(rows.values())) > 1:
            counts = " and ".join(f"{count:,} rows in {name!r}" for name, count in rows.items())
            raise BadInput(
                f"has {counts}", where=self.path, step="give one row of each for every query"
            )
        if not self.missing:
            self._refuse_one_model_twice()

    def _refuse_one_model_twice(self) -> None:
        old, new = (self.vectors[side] for side in SIDES)
        blocks = zip(_blocks(old), _blocks(new), strict=True)
        if old.dim == new.dim and all(np.array_equal(a, b) for (_, a), (_, b) in blocks):
            raise BadInput(
                "'old' and 'new' hold the same vectors",
                where=self.path,
                step="give the vectors of two models",
            )

    def _texts(self) -> Iterator[str | None]:
        file_size(self.path)
        with reading(self.path):
            try:
                if self._column is None:
                    yield from _lines(self.path)
                elif self._kind == ".csv":
                    yield from self._of_csv(self._column)
                elif self._kind == ".parquet":
                    yield from self._of_parquet(self._column)
                else:
                    from crossfade.files import npz

                    yield from self._strings(self._column, npz.values(self.path, self._column))
            except pa.ArrowException as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise BadInput(
                    f"cannot be read ({said})",
                    where=self.path,
                    step="check the file and its encoding",
                ) from error

    def _of_csv(self, column: str) -> Iterator[str | None]:
        from pyarrow import csv

        with csv.open_csv(self.path) as reader:
            if column not in reader.schema.names:
                raise self._no_column(reader.schema.names)
            for batch in reader:
                yield from self._strings(column, batch[column])

    def _of_parquet(self, column: str) -> Iterator[str | None]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            if column not in file.schema_arrow.names:
                raise self._no_column(file.schema_arrow.names)
            for batch in file.iter_batches(columns=[column]):
                yield from self._strings(column, batch[column])

    def _strings(self, name: str, column: pa.Array) -> Iterator[str | None]:
        kind = column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (text or pa.types.is_null(kind)):
            raise BadInput(f"{name!r} holds {kind}", where=self.path, step="name a column of texts")
        yield from column.to_pylist()

    def _no_column(self, names: list[str]) -> BadInput:
        return BadInput(
            f"has no column {self._column!r}",
            where=self.path,
            step=f"name one of {', '.join(names)}",
        )


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise BadInput(
            f"is no UTF-8 text ({error.reason} at byte {error.start})",
            where=path,
            step="give one text per line, FILE.parquet:COLUMN or FILE.csv:COLUMN, or a .npz, "
            ".parquet or .safetensors file with 'old' and 'new'",
        ) from None


def _blocks(source: Source) -> Iterator[tuple[int, Float]]:
    start = 0
    for x in source.vectors(max(1, _READ_BYTES // (4 * source.dim))):
        # A float64 beyond float32's range becomes infinite here, and is then found as a bad row.
        with np.errstate(over="ignore"):
            yield start, np.ascontiguousarray(x, np.float32)
        start += len(x)


def _refuse_bad_rows(path: Path, side: str, source: Source) -> None:
    for start, x in _blocks(source):
        for row, problem in bad_rows(x).items():
            raise BadRow(
                start + row,
                problem,
                where=path,
                side=side,
                step="leave that query out of the file, or embed it again",
            )
