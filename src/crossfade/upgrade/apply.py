"""Applying an upgrade to the vectors of a file: F to old ones, B to new ones.

The work is one pure function from record batch to record batch; everything around it streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from crossfade.errors import BadInput, BadRow
from crossfade.files import (
    Layout,
    Source,
    left_out,
    open_source,
    refuse_existing,
    write_batches,
)
from crossfade.files.arrow import to_arrow, to_numpy

Direction = Literal["forward", "backward"]
READS: dict[Direction, str] = {"forward": "old", "backward": "new"}
OTHER: dict[Direction, Direction] = {"forward": "backward", "backward": "forward"}
SPACE, UPGRADE, DIRECTION = "crossfade.space", "crossfade.upgrade", "crossfade.direction"
# What one batch may take: its rows as stored, as float32, mapped, and as stored again.
_BATCH_BYTES = 128 << 20


class Maps(Protocol):
    """What is needed of an upgrade here: its two maps, their dimensions and its content hash."""

    @property
    def old_dim_(self) -> int: ...
    @property
    def new_dim_(self) -> int: ...
    @property
    def hash_(self) -> str: ...
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
    mapped = to_arrow(_cast(fn(vectors), kept))
    place = batch.schema.get_field_index(column)
    return batch.set_column(place, batch.schema.field(place).with_type(mapped.type), mapped)


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
    progress: Callable[[int, int], None] | None = None,
) -> ApplyReport:
    """Map all vectors of one file into the shared space and write them to another.

    `forward` reads old vectors, `backward` new ones. Columns and arrays beside the vectors are kept
    as far as the target's format can hold them. `progress` is called with rows done and rows in
    all. The target is there in whole at the end, or not at all.

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
    target = Path(target)
    refuse_existing(target, overwrite=overwrite)
    opened = open_source(source, column)
    _check_side(upgrade, opened, direction)
    fn = upgrade.forward if direction == "forward" else upgrade.backward
    kept = output_dtype(opened.dtype) if dtype is None else np.dtype(dtype)
    dim_out = _dim_out(fn, opened.dim)
    layout = _layout(opened, dim_out, kept, upgrade, direction)
    size = _batch_rows(opened, dim_out) if batch_rows is None else batch_rows
    if size < 1:
        raise BadInput(f"a batch of {size} rows", step="give --batch-rows a number above 0")
    mapped = _mapped(opened, fn, layout, size, progress)
    write_batches(target, mapped, layout, overwrite=overwrite)
    return ApplyReport(
        path=target,
        rows=opened.rows,
        dim_in=opened.dim,
        dim_out=dim_out,
        seconds=time.perf_counter() - begin,
        left_out=left_out(target, layout),
    )


def output_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which mapped vectors are stored if none is asked for.

    >>> output_dtype(np.dtype(np.float16)), output_dtype(np.dtype(np.float64))
    (dtype('float16'), dtype('float32'))
    """
    return np.dtype(np.float16 if stored == np.float16 else np.float32)


def _mapped(
    source: Source,
    fn: Callable[[NDArray[Any]], NDArray[Any]],
    layout: Layout,
    size: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in source.batches(size):
        try:
            mapped = transform_batch(batch, source.column, fn, layout.dtype)
        except BadRow as error:
            raise error.moved(start, where=source.path, side=source.column) from None
        except BadInput as error:
            raise BadInput(error.cause, where=source.path, step=error.step) from None
        start += batch.num_rows
        yield mapped.replace_schema_metadata(layout.schema.metadata)
        if progress is not None:
            progress(start, source.rows)


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
    place = source.schema.get_field_index(source.column)
    field = source.schema.field(place).with_type(pa.list_(pa.from_numpy_dtype(dtype), dim))
    metadata = {**(source.schema.metadata or {}), **encoded}
    schema = source.schema.set(place, field).with_metadata(metadata)
    return Layout(schema, source.column, source.rows, source.extras)


def _dim_out(fn: Callable[[NDArray[Any]], NDArray[Any]], dim: int) -> int:
    """The map's own answer, for one vector that any map accepts."""
    return int(fn(np.ones((1, dim), np.float32)).shape[1])


def _batch_rows(source: Source, dim_out: int) -> int:
    per_row = (source.dim + dim_out) * (4 + source.dtype.itemsize)
    return max(1, _BATCH_BYTES // per_row)
