"""Search in a folder of Parquet files: through all vectors, a few thousand at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.stores.contract import Column, Where
from crossfade.stores.names import Range, check_where
from crossfade.stores.parquet.base import Snapshot
from crossfade.stores.parquet.delta import Live, Sidecar
from crossfade.stores.parquet.rows import Rows, places, vectors
from crossfade.stores.rows import matrix, similarities

Kept = NDArray[np.bool_]


class Listed(Protocol):
    """Rows of one moment, in order of id; a position counts them."""

    @property
    def ids(self) -> pa.Array: ...
    @property
    def schema(self) -> pa.Schema: ...
    def scan(self, columns: Sequence[str]) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """All rows as (positions, batch)."""
        ...


def nearest(
    parts: Iterator[tuple[Rows, NDArray[np.float32]]],
    query: NDArray[np.float32],
    distance: Distance,
    keep: Kept,
    k: int,
) -> tuple[Rows, NDArray[np.float32]]:
    """Positions and scores of the `k` best; of equal ones the lower id comes first."""
    best, at = np.empty(0, np.float32), np.empty(0, np.int64)
    for positions, part in parts:
        kept = keep[positions]
        best = np.concatenate([best, similarities(distance, part[kept], query)])
        at = np.concatenate([at, positions[kept]])
        order = np.lexsort((at, -best))[:k]
        best, at = best[order], at[order]
    return at, best


def all_vectors(
    snapshot: Snapshot, side: Sidecar, column: str, asked: int
) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """All vectors of a column, as (positions, vectors), without the rows that have none; of the
    `asked` dimensions, or of none at all."""
    known = side.columns()
    if column in known:
        live, there = live_in(snapshot, side)
        for rows, values in live.scan(*known[column]):
            has = _valid(values) & (there[rows] >= 0)
            yield there[rows][has], matrix(values.filter(pa.array(has)))
        return
    dim = dimension(snapshot, column)
    if dim != asked:
        raise BadInput(
            f"{column!r} has vectors of {dim} dimensions, and the query {asked}",
            where=snapshot.files[0].path.parent,
        )
    for positions, batch in snapshot.scan([column]):
        has = _valid(batch[column])
        where = snapshot.files[int(snapshot.file_of(positions[:1])[0])].path
        yield positions[has], matrix(vectors(batch[column], dim, where))[has]


def allowed(snapshot: Listed, side: Sidecar, where: Where | None, missing: str | None) -> Kept:
    """For each position whether a search may find it."""
    wanted = check_where(where, tuple(snapshot.schema.names))
    keep = np.ones(len(snapshot.ids), bool)
    if wanted:
        for positions, batch in snapshot.scan(list(wanted)):
            for name, values in wanted.items():
                keep[positions] &= _passes(batch[name], values)
    if missing is not None:
        live, there = live_in(snapshot, side)
        for rows, found in live.scan(*added(side, missing)):
            has = _valid(found) & (there[rows] >= 0)
            keep[there[rows][has]] = False
    return keep


def added(side: Sidecar, column: str) -> tuple[Column, str]:
    """Where an added column is kept; it may have gone since the migration was last looked at."""
    known = side.columns()
    if column not in known:
        raise BadInput(f"has no added column {column!r}", where=side.folder)
    return known[column]


def live_in(snapshot: Listed, side: Sidecar) -> tuple[Live, Rows]:
    """What was written, and where the application has each of its rows now, −1 for nowhere."""
    live = side.live()
    return live, places(live.ids.cast(snapshot.ids.type), snapshot.ids)


def dimension(snapshot: Snapshot, column: str) -> int:
    """How long the vectors of the application are."""
    # An empty file may be as old as it likes.
    first = next((file for file in snapshot.files if len(file.ids)), snapshot.files[0])
    if column not in first.schema.names:
        raise BadInput(f"has no column {column!r}", where=first.path)
    kind = first.schema.field(column).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    for _, batch in snapshot.scan([column]):
        found = batch[column].drop_null()
        if len(found):
            return len(found[0])
    raise BadInput(f"{column!r} has no vector in it", where=snapshot.files[0].path)


def _valid(column: pa.Array) -> Kept:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)


def _passes(column: pa.Array, values: list[Any] | Range) -> Kept:
    """Which rows a filter on one column keeps."""
    if not isinstance(values, Range):
        return _is_one_of(column, values)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadInput(f"a range of {kind}", step="use a column of numbers")
    keep = _valid(column)
    compare = {">=": pc.greater_equal, "<=": pc.less_equal}
    for sign, end in values.ends:
        passed = compare[sign](column, pa.scalar(end)).fill_null(False)
        keep = keep & np.asarray(passed.to_numpy(zero_copy_only=False), bool)
    return np.asarray(keep)


def _is_one_of(column: pa.Array, values: Sequence[Any]) -> Kept:
    """Which rows have one of some values; a value the column's type cannot hold is in none.

    >>> _is_one_of(pa.array([1, 2, None]), [2, "x"]).tolist()
    [False, True, False]
    """
    fitting = []
    for value in values:
        try:
            fitting.append(pa.scalar(value, column.type).as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    found = pc.is_in(column, value_set=pa.array(fitting, column.type))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
