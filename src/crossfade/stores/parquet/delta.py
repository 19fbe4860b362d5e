"""Columns beside a folder of Parquet files: batches as delta files, of which the later one wins.

    _crossfade/columns.json              the columns there are, with the name each has in the deltas
    _crossfade/00000001-00000001.parquet a batch: id and all columns
    _crossfade/00000001-00000016.parquet sixteen of them, merged

A name says which batches a file holds, first to last. A file whose batches are all in another one
is of no account: so a merge is done once its file has its name, and no kill leaves it half done.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crossfade.errors import StoreError
from crossfade.files import replacing
from crossfade.stores.contract import Column
from crossfade.stores.parquet.rows import (
    Changed,
    Rows,
    Signature,
    hold,
    opened,
    scan,
    signature,
    take,
)
from crossfade.stores.values import damaged, read_kept

FAN = 16
_NAME = re.compile(r"(\d{8,})-(\d{8,})(?:-[0-9a-f]{16})?\.parquet")
_ID = "id"
_STEP = "delete this file: its rows count as not written, and are written again"


@dataclass(frozen=True)
class Delta:
    """One file of batches, `first` to `last`."""

    path: Path
    first: int
    last: int
    signature: Signature
    names: frozenset[str]
    ids: pa.Array

    @property
    def level(self) -> int:
        """How often its batches were merged."""
        return int(math.log(self.last - self.first + 1, FAN) + 1e-9)


@dataclass(frozen=True)
class Live:
    """The rows that were not written again later."""

    deltas: tuple[Delta, ...]
    ids: pa.Array
    row: Rows
    """For each id, its row's number when the deltas are laid end to end."""

    @property
    def edges(self) -> Rows:
        return np.concatenate([[0], np.cumsum([len(d.ids) for d in self.deltas])]).astype(np.int64)

    def read(self, places: Rows, column: Column, stored: str) -> pa.Array:
        """One column at the given places among `ids`; null at −1 and where it was not written."""
        there = np.flatnonzero(places >= 0)
        rows = self.row[places[there]]
        numbers = np.searchsorted(self.edges, rows, "right") - 1
        parts = [pa.nulls(1, column.arrow)]
        back = np.zeros(len(places), np.int64)
        filled = 1
        for number in np.unique(numbers):
            delta = self.deltas[number]
            if stored not in delta.names:
                continue
            mine = np.flatnonzero(numbers == number)
            with opened(delta.path, delta.signature, step=_STEP) as handle:
                table = take(handle, rows[mine] - self.edges[number], [stored])
            parts += [chunk.cast(column.arrow) for chunk in table[stored].chunks]
            back[there[mine]] = filled + np.arange(len(mine))
            filled += len(mine)
        return pa.concat_arrays(parts).take(pa.array(back))

    def scan(self, column: Column, stored: str) -> Iterator[tuple[Rows, pa.Array]]:
        """One column as (places among `ids`, values), file by file."""
        among = np.full(int(self.edges[-1]), -1, np.int64)
        among[self.row] = np.arange(len(self.row))
        with ExitStack() as stack:
            # All are held from the start, so that a merge meanwhile does not matter.
            held = [stack.enter_context(hold(d.path, d.signature)) for d in self.deltas]
            for delta, edge, raw in zip(self.deltas, self.edges[:-1], held, strict=True):
                if stored not in delta.names:
                    continue
                with opened(delta.path, delta.signature, step=_STEP, held=raw) as handle:
                    for start, batch in scan(handle, [stored]):
                        places = among[edge + start : edge + start + len(batch)]
                        live = places >= 0
                        values = batch[stored].filter(pa.array(live)).cast(column.arrow)
                        yield places[live], values


class Sidecar:
    """The folder `_crossfade` of a disk, where a name that is there is a batch that counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, Delta] = {}
        self._last: Live | None = None

    def columns(self) -> dict[str, tuple[Column, str]]:
        """The columns there are: name → (column, its name in the deltas)."""
        return {
            name: (Column(name, told["kind"], told["dim"]), told["stored"])
            for name, told in self._told()["columns"].items()
        }

    def add(self, columns: Sequence[Column]) -> None:
        """Add columns; a name that was dropped before comes back empty."""
        told = self._told()
        for column in columns:
            if column.name not in told["columns"]:
                told["serial"] += 1
                told["columns"][column.name] = {
                    "kind": column.kind,
                    "dim": column.dim,
                    "stored": f"{column.name}.{told['serial']}",
                }
        self._tell(told)

    def drop(self, names: Sequence[str]) -> None:
        """Drop columns; with the last one the deltas go."""
        told = self._told()
        kept = {n: c for n, c in told["columns"].items() if n not in names}
        if kept != told["columns"]:
            self._tell({**told, "columns": kept})
        if not kept and self.folder.is_dir():
            for path in self._paths():
                path.unlink(missing_ok=True)

    def append(
        self, ids: pa.Array, values: Mapping[str, pa.Array], still: Callable[[], bool]
    ) -> None:
        """One batch, which is there in whole at the end, or not at all.

        `still` is asked when all is written but the name: if it says no, that is `Changed`.
        """
        known = self.columns()
        arrays = {known[name][1]: array for name, array in values.items()}
        table = pa.table({_ID: ids, **arrays})
        number = max((span(path)[1] for path in self._paths()), default=0) + 1
        with self._adding(number, number) as temporary:
            with _writer(temporary, table.schema) as writer:
                writer.write_table(table, row_group_size=8192)
            if not still():
                raise Changed
        self.merge()

    def merge(self) -> None:
        """Sixteen files of a level become one of the next, so that there are never many."""
        while True:
            deltas = self._deltas()
            tail = deltas[-FAN:]
            if len(tail) < FAN or len({delta.level for delta in tail}) > 1:
                return
            live = _live(tuple(tail))
            stored = {stored: column for column, stored in self.columns().values()}
            names = [n for n in stored if any(n in delta.names for delta in tail)]
            fields = [(_ID, live.ids.type), *((n, stored[n].arrow) for n in names)]
            schema = pa.schema(fields)
            with (
                self._adding(tail[0].first, tail[-1].last) as temporary,
                _writer(temporary, schema) as writer,
            ):
                for delta, edge in zip(tail, live.edges[:-1], strict=True):
                    _copy(delta, np.sort(live.row) - edge, schema, writer)
            self._sweep()

    def live(self) -> Live:
        """The rows as they are at this moment; only files that are new are read."""
        while True:
            with suppress(Changed):
                deltas = tuple(self._deltas())
                if self._last is None or self._last.deltas != deltas:
                    self._last = _live(deltas)
                return self._last

    def state(self) -> list[str]:
        """What is there, by name: another list once anything was written."""
        return [*map(str, self.columns()), *(path.name for path in needed(self._paths()))]

    def clean(self) -> None:
        """Remove what a killed process left: temporary files, and files that were merged."""
        if self.folder.is_dir():
            for path in self.folder.glob(".*.tmp-*"):
                path.unlink(missing_ok=True)
            self._sweep()

    def _deltas(self) -> list[Delta]:
        known: dict[Path, Delta] = {}
        for path in needed(self._paths()):
            try:
                mark = self._signature(path)
            except FileNotFoundError:
                raise Changed from None
            delta = self._known.get(path)
            if delta is None or delta.signature != mark:
                with opened(path, mark, step=_STEP) as handle:
                    names = frozenset(handle.schema_arrow.names)
                    if _ID not in names:
                        raise StoreError("is not a delta of Crossfade", where=path, step=_STEP)
                    ids = handle.read([_ID])[_ID].combine_chunks()
                delta = Delta(path, *span(path), mark, names, ids)
            known[path] = delta
        self._known = known
        return list(known.values())

    def _signature(self, path: Path) -> Signature:
        return signature(path)

    def _sweep(self) -> None:
        paths = self._paths()
        for path in set(paths) - set(needed(paths)):
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    @contextmanager
    def _adding(self, first: int, last: int) -> Iterator[Path]:
        """A temporary name; what is written there counts as these batches in the end."""
        with replacing(self.folder / f"{first:08d}-{last:08d}.parquet") as temporary:
            yield temporary

    def _told(self) -> dict[str, Any]:
        path = self.folder / "columns.json"
        told = read_kept(path)
        if told is None:
            return {"serial": 0, "columns": {}}
        columns, serial = told.get("columns"), told.get("serial")
        if not isinstance(columns, dict) or type(serial) is not int:
            raise damaged(path, "it lists no columns")
        for column in columns.values():
            if not isinstance(column, dict) or not {"kind", "dim", "stored"} <= column.keys():
                raise damaged(path, "a column in it has no kind")
        return told

    def _tell(self, told: Mapping[str, Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        with replacing(self.folder / "columns.json", overwrite=True) as temporary:
            temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _live(deltas: tuple[Delta, ...]) -> Live:
    if not deltas:
        return Live((), pa.array([], pa.int64()), np.empty(0, np.int64))
    ids = pa.concat_arrays([delta.ids for delta in deltas])
    table = pa.table({_ID: ids, "row": np.arange(len(ids))})
    last = table.group_by(_ID).aggregate([("row", "max")]).combine_chunks()
    rows = np.asarray(last["row_max"].to_numpy(), np.int64)
    return Live(deltas, last[_ID].combine_chunks(), rows)


def _copy(delta: Delta, rows: Rows, schema: pa.Schema, writer: Any) -> None:
    """Those of the given rows that are in a delta, with null in columns that it has not."""
    names = [name for name in schema.names if name in delta.names]
    with opened(delta.path, delta.signature, step=_STEP) as handle:
        for start, batch in scan(handle, names):
            first, last = np.searchsorted(rows, [start, start + len(batch)])
            kept = batch.take(pa.array(rows[first:last] - start))
            columns = [
                kept[f.name].cast(f.type) if f.name in names else pa.nulls(len(kept), f.type)
                for f in schema
            ]
            if len(kept):
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _writer(path: Path, schema: pa.Schema) -> Any:
    # Vectors hardly ever repeat a number: a dictionary or statistics of them only cost time.
    others = [f.name for f in schema if not pa.types.is_fixed_size_list(f.type)]
    return pq.ParquetWriter(path, schema, use_dictionary=others, write_statistics=False)


def span(path: Path) -> tuple[int, int]:
    """The first and the last batch that a file holds, by its name."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise StoreError("is not a delta of Crossfade", where=path, step=_STEP)
    return int(found[1]), int(found[2])


def needed(paths: Sequence[Path]) -> list[Path]:
    """The files whose batches are not all in another file, in the order of their batches."""
    kept: list[Path] = []
    reached = 0
    for path in sorted(paths, key=lambda p: (span(p)[0], -span(p)[1])):
        if span(path)[1] > reached:
            kept.append(path)
            reached = span(path)[1]
    return kept
