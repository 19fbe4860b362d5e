"""Applying an upgrade to the vectors of a file: F to old ones, B to new ones.

The work is one pure function from record batch to record batch; everything around it streams.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from crossfade.errors import BadInput, BadRow
from crossfade.files import (
    Layout,
    Source,
    is_folder,
    left_out,
    open_source,
    refuse_existing,
    replacing,
    write_batches,
)
from crossfade.files.arrow import to_arrow, to_numpy
from crossfade.maps.directed import Directed
from crossfade.remote import RemotePath, to_path
from crossfade.solvers.device import name_device
from crossfade.threads import ahead

if TYPE_CHECKING:
    from crossfade.maps.on_device import DeviceMap

Direction = Literal["forward", "backward"]
READS: dict[Direction, str] = {"forward": "old", "backward": "new"}
OTHER: dict[Direction, Direction] = {"forward": "backward", "backward": "forward"}
SPACE, UPGRADE, DIRECTION = "crossfade.space", "crossfade.upgrade", "crossfade.direction"
# What one batch may take: its rows as stored, as float32, mapped, and as stored again. Several are
# on their way at a time, and the C library keeps as much again of what was freed.
_BATCH_BYTES = 64 << 20
# To a device each is a journey of its own.
_BATCH_BYTES_THERE = 128 << 20


class Maps(Protocol):
    """What is needed of an upgrade here: its two maps, their dimensions and its content hash."""

    @property
    def old_dim_(self) -> int: ...
    @property
    def new_dim_(self) -> int: ...
    @property
    def hash_(self) -> str: ...
    @property
    def forward_(self) -> Directed: ...
    @property
    def backward_(self) -> Directed: ...
    def forward(self, x: NDArray[Any], /) -> NDArray[np.float32]: ...
    def backward(self, x: NDArray[Any], /) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class ApplyReport:
    """What was done; `left_out` names what the target's format could not hold."""

    path: Path
    rows: int
    dim_in: int
    dim_out: int
    seconds: float
    left_out: tuple[str, ...] = field(default=())


def transform_batch(
    batch: pa.RecordBatch,
    column: str,
    fn: Callable[[NDArray[Any]], NDArray[Any]],
    dtype: DTypeLike | None = None,
) -> pa.RecordBatch:
    """The batch with the vectors of `column` mapped by `fn` (m, d) → (m, n), the rest as it was.

    The result is of `dtype`; without it float16 and float32 stay, and float64 becomes float32.

    >>> batch = pa.record_batch({"vector": to_arrow(np.eye(2, dtype=np.float16))})
    >>> doubled = transform_batch(batch, "vector", lambda x: 2 * x)
    >>> doubled.column("vector").to_pylist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    vectors = to_numpy(batch.column(column))
    kept = output_dtype(vectors.dtype) if dtype is None else np.dtype(dtype)
    return _with_vectors(batch, column, _cast(fn(vectors), kept))


def _with_vectors(batch: pa.RecordBatch, column: str, vectors: NDArray[Any]) -> pa.RecordBatch:
    mapped = to_arrow(vectors)
    at = batch.schema.get_field_index(column)
    return batch.set_column(at, batch.schema.field(at).with_type(mapped.type), mapped)


def apply_file(
    upgrade: Maps,
    source: str | Path,
    target: str | Path,
    *,
    direction: Direction,
    column: str | None = None,
    dtype: DTypeLike | None = None,
    batch_rows: int | None = None,
    overwrite: bool = False,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> ApplyReport:
    """Map all vectors of one file into the shared space and write them to another.

    `forward` reads old vectors, `backward` new ones. Columns and arrays beside the vectors are kept
    as far as the target's format can hold them. `progress` is called with rows done and rows in
    all. The target is there in whole at the end, or not at all. A folder of Parquet files is mapped
    into a folder, file by file, unless the target's name is that of a file. On another `device`
    (cuda, cuda:N, auto) torch maps, while the next rows are read and the last ones written.

    >>> import tempfile
    >>> from crossfade.upgrade import Upgrade
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(100, 4))
    >>> old = new + 0.1 * rng.normal(size=(100, 4))
    >>> upgrade = Upgrade(solver="closed_form").fit(old, new)
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "gallery.npy", old)
    >>> apply_file(upgrade, folder / "gallery.npy", folder / "shared.npy", direction="forward").rows
    100
    """
    begin = time.perf_counter()
    source, target = to_path(source), to_path(target)
    refuse_existing(target, overwrite=overwrite)
    job = Job(upgrade, direction, column, dtype, batch_rows, name_device(device))
    if is_folder(source) and not target.suffix:
        return apply_folder(job, source, target, overwrite=overwrite, progress=progress)
    opened = open_source(source, column)
    layout = job.layout(opened)
    mapped = _told(job.mapped(opened), opened.rows, progress)
    write_batches(target, mapped, layout, overwrite=overwrite)
    return job.report(opened, layout, target, begin)


@dataclass(frozen=True)
class Job:
    """What is to be done to vectors: by which map of an upgrade, and how they are stored then."""

    upgrade: Maps
    direction: Direction
    column: str | None = None
    dtype: DTypeLike | None = None
    batch_rows: int | None = None
    device: str = "cpu"

    def layout(self, source: Source) -> Layout:
        """What is written for a source, after checking that it is one for this direction."""
        _check_side(self.upgrade, source, self.direction)
        if self.batch_rows is not None and self.batch_rows < 1:
            raise BadInput(
                f"a batch of {self.batch_rows} rows", step="give --batch-rows a number above 0"
            )
        kept = output_dtype(source.dtype) if self.dtype is None else np.dtype(self.dtype)
        dim_out = _dim_out(self._map, source.dim)
        return _layout(source, dim_out, kept, self.upgrade, self.direction)

    def mapped(self, source: Source, first: int = 0) -> Iterator[pa.RecordBatch]:
        """The batches to write; rows are counted from `first` in messages."""
        layout = self.layout(source)
        most = _BATCH_BYTES if self.device == "cpu" else _BATCH_BYTES_THERE
        size = self.batch_rows or _batch_rows(source, layout.dim, most)
        for mapped in self._mapped(source, layout, size, first):
            yield mapped.replace_schema_metadata(layout.schema.metadata)

    def _mapped(
        self, source: Source, layout: Layout, size: int, first: int
    ) -> Iterator[pa.RecordBatch]:
        if self.device != "cpu":
            from crossfade.maps.on_device import DeviceMap

            forward = self.direction == "forward"
            directed = self.upgrade.forward_ if forward else self.upgrade.backward_
            there = DeviceMap(directed, self.device)
            yield from ahead(_mapped_there(source, there, layout, size, first))
            return
        start = first
        for batch in source.batches(size):
            with _told_of(source, start):
                yield transform_batch(batch, source.column, self._map, layout.dtype)
            start += batch.num_rows

    def report(self, source: Source, layout: Layout, target: Path, begin: float) -> ApplyReport:
        lost = () if is_folder(target) else left_out(target, layout)
        seconds = time.perf_counter() - begin
        return ApplyReport(target, source.rows, source.dim, layout.dim, seconds, lost)

    @property
    def _map(self) -> Callable[[NDArray[Any]], NDArray[Any]]:
        return self.upgrade.forward if self.direction == "forward" else self.upgrade.backward


def apply_folder(
    job: Job,
    source: Path,
    target: Path,
    *,
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
    each: Callable[[Callable[[Path], int], Sequence[Path]], Iterable[int]] = map,
) -> ApplyReport:
    """A folder of Parquet files into another with files of the same names.

    `each` may have files done by others. On a disk the folder is there in whole at the end, or not
    at all; in an object store each file is.
    """
    from crossfade.files.folder import parquet_files

    begin = time.perf_counter()
    opened = open_source(source, job.column)
    layout, done = job.layout(opened), 0
    with _folder(target, overwrite=overwrite) as made:
        for rows in each(FileJob(job, made), parquet_files(source)):
            done += rows
            if progress is not None:
                progress(done, opened.rows)
    return job.report(opened, layout, target, begin)


@dataclass(frozen=True)
class FileJob:
    """Maps one file into a file of the same name in another folder; gives its rows."""

    job: Job
    target: Path

    def __call__(self, path: Path) -> int:
        opened = open_source(path, self.job.column)
        layout = self.job.layout(opened)
        # Written whole under its name: whoever does it a second time does no harm.
        write_batches(self.target / path.name, self.job.mapped(opened), layout, overwrite=True)
        return opened.rows


@contextmanager
def _folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    if not isinstance(target, RemotePath):
        with replacing(target, overwrite=overwrite) as temporary:
            temporary.mkdir()
            yield temporary
        return
    if target.exists() and not is_folder(target):
        raise BadInput("is no folder of Parquet files", where=target, step="name another one")
    before = {path.name for path in target.iterdir()}
    try:
        yield target
    except BaseException:
        for path in target.iterdir():
            if path.name not in before:
                path.unlink(missing_ok=True)
        raise


def _told(
    batches: Iterator[pa.RecordBatch], rows: int, progress: Callable[[int, int], None] | None
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if progress is not None:
            progress(done, rows)


def output_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which mapped vectors are stored if none is asked for.

    >>> output_dtype(np.dtype(np.float16)), output_dtype(np.dtype(np.float64))
    (dtype('float16'), dtype('float32'))
    """
    return np.dtype(np.float16 if stored == np.float16 else np.float32)


def _mapped_there(
    source: Source, there: DeviceMap, layout: Layout, size: int, first: int
) -> Iterator[pa.RecordBatch]:
    """Batches of a source, as many on their way to a device and back as keep it busy."""
    from crossfade.maps.on_device import IN_FLIGHT, Flight

    flying: deque[tuple[int, pa.RecordBatch, Flight]] = deque()

    def land() -> pa.RecordBatch:
        start, batch, flight = flying.popleft()
        found = flight.result()
        with _told_of(source, start):
            if found is None:
                return transform_batch(batch, source.column, there.directed, layout.dtype)
            return _with_vectors(batch, source.column, found)

    start = first
    for batch in ahead(source.batches(size)):
        with _told_of(source, start):
            flight = there.send(to_numpy(batch.column(source.column)), layout.dtype)
        flying.append((start, batch, flight))
        start += batch.num_rows
        if len(flying) >= IN_FLIGHT:
            yield land()
    while flying:
        yield land()


@contextmanager
def _told_of(source: Source, start: int) -> Iterator[None]:
    """Errors about a batch name the file, and the row as it is counted there."""
    try:
        yield
    except BadRow as error:
        raise error.moved(start, where=source.path, side=source.column) from None
    except BadInput as error:
        raise BadInput(error.cause, where=source.path, step=error.step) from None


def _cast(mapped: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`mapped` as `dtype`; a number that does not fit is an error and not an infinity."""
    try:
        with np.errstate(over="raise"):
            return mapped.astype(dtype, copy=False)
    except FloatingPointError:
        row = int(np.flatnonzero((np.abs(mapped) > np.finfo(dtype).max).any(axis=1))[0])
        raise BadRow(
            row, f"maps to a number too large for {dtype}", step="add --dtype float32"
        ) from None


def _check_side(upgrade: Maps, source: Source, direction: Direction) -> None:
    """Refuse vectors whose metadata or dimension says that `direction` does not read them."""
    reads, other = READS[direction], OTHER[direction]
    space = source.metadata.get(SPACE)
    if space == "shared":
        raise BadInput(
            "its vectors are already in the shared space "
            f"(upgrade {source.metadata.get(UPGRADE, 'unknown')[:12]})",
            where=source.path,
            step=f"give the {reads} model's own vectors",
        )
    if space in READS.values() and space != reads:
        raise BadInput(
            f"says that it holds {space} vectors, and {direction} reads {reads} ones",
            where=source.path,
            step=f"use --direction {other}",
        )
    dims = {"old": upgrade.old_dim_, "new": upgrade.new_dim_}
    if source.dim != dims[reads]:
        fits = source.dim == dims[READS[other]]
        raise BadInput(
            f"'{source.column}' has dimension {source.dim}, and {direction} reads {reads} vectors "
            f"of dimension {dims[reads]}",
            where=source.path,
            step=f"these look like {READS[other]} vectors: use --direction {other}"
            if fits
            else "give vectors of the models the upgrade was fitted on",
        )


def _layout(
    source: Source, dim: int, dtype: np.dtype[Any], upgrade: Maps, direction: Direction
) -> Layout:
    tags = {SPACE: "shared", UPGRADE: upgrade.hash_, DIRECTION: direction}
    # Arrow's keys are bytes: tags as text would stand beside those of the input, not replace them.
    encoded = {key.encode(): value.encode() for key, value in tags.items()}
    at = source.schema.get_field_index(source.column)
    field = source.schema.field(at).with_type(pa.list_(pa.from_numpy_dtype(dtype), dim))
    metadata = {**(source.schema.metadata or {}), **encoded}
    schema = source.schema.set(at, field).with_metadata(metadata)
    return Layout(schema, source.column, source.rows, source.extras)


def _dim_out(fn: Callable[[NDArray[Any]], NDArray[Any]], dim: int) -> int:
    """The map's own answer, for one vector that any map accepts."""
    return int(fn(np.ones((1, dim), np.float32)).shape[1])


def _batch_rows(source: Source, dim_out: int, most: int) -> int:
    per_row = (source.dim + dim_out) * (4 + source.dtype.itemsize)
    return max(1, most // per_row)
