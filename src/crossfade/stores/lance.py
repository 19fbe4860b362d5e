"""LanceDB: a Lance table in a folder, the default store; needs no server.

Added columns are columns of the table, null until written: the first time fragment by fragment
(`lance_columns`), then in batches with `merge_insert` from the version they were read at. Lance
refuses the commit if any of these rows was changed or deleted in between, and the batch is read
again. Old versions keep what they held, so readers that have the table open are not disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.errors import BadInput, MissingExtra
from crossfade.files.arrow import is_vector_type
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
    Column,
    Description,
    Hit,
    Id,
    Metric,
    Where,
    Work,
)
from crossfade.stores.lance_columns import can_write_columns, write_columns
from crossfade.stores.lance_fragments import SPARE, enter_moved, tidy
from crossfade.stores.lance_words import (
    indexed,
    is_text,
    listed,
    literal,
    quoted,
    statements,
    telling,
    the_id,
    the_vector,
)
from crossfade.stores.lance_writes import write_batch
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import PREFIX, check_name, check_where
from crossfade.stores.rows import in_order, one_batch, score
from crossfade.stores.values import FileValues, beside

# Below this many rows a scan is as fast as an index and exact.
_INDEX_FROM_ROWS = 50_000


class LanceStore:
    """A table of a LanceDB folder."""

    kind = "lancedb"

    def __init__(
        self,
        path: str | Path,
        *,
        id: str | None = None,
        vector: str | None = None,
        metric: Metric | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._moved = 0
        self._values = FileValues(self._beside("json"))
        if not (self.path / "_versions").is_dir():
            raise BadInput("is not a LanceDB table", where=path, step="name DIR/TABLE.lance")
        schema = self._now().schema
        self.id = check_name(id or the_id(schema, self.name), "column")
        self.vector = check_name(vector or the_vector(schema, self.name), "column")
        for name in (self.id, self.vector):
            if name not in schema.names:
                raise BadInput(f"has no column {name!r}", where=path, step=listed(schema))
        kind = schema.field(self.id).type
        if not (pa.types.is_integer(kind) or is_text(kind)):
            raise BadInput(f"ids are {kind}", where=path, step="use integer or text ids")
        self._text_ids = is_text(kind)
        if not is_vector_type(schema.field(self.vector).type):
            raise BadInput(f"{self.vector!r} holds no vectors", where=path, step=listed(schema))
        self.metric: Metric = metric or self._index_metric() or "cosine"

    def describe(self) -> Description:
        dataset = self._now()
        names = tuple(dataset.schema.names)
        kind = dataset.schema.field(self.vector).type
        if not pa.types.is_fixed_size_list(kind):
            raise BadInput(
                f"{self.vector!r} is a list of any length",
                where=self.name,
                step="make it a list of a fixed size",
            )
        with telling(self.name):
            rows, covered = dataset.count_rows(), indexed(dataset)
        return Description(
            kind=self.kind,
            name=self.name,
            rows=rows,
            id=self.id,
            id_type="text" if self._text_ids else "integer",
            vector=self.vector,
            dim=kind.list_size,
            metric=self.metric,
            columns=tuple(n for n in names if not n.startswith(PREFIX)),
            added=tuple(n for n in names if n.startswith(PREFIX)),
            indexed=tuple(sorted(covered)),
        )

    def stream(
        self, columns: Sequence[str], *, after: Id | None = None, size: int = ROWS
    ) -> Iterator[pa.RecordBatch]:
        dataset = self._now()
        with telling(self.name):
            ids = dataset.to_table(columns=[self.id])[self.id].combine_chunks()
        ids = ids.take(pc.sort_indices(ids))
        if after is not None:
            ids = ids.filter(pc.greater(ids, pa.scalar(after, ids.type)))
        for first in range(0, len(ids), size):
            last = min(first + size, len(ids)) - 1
            low, high = literal(ids[first].as_py()), literal(ids[last].as_py())
            table = self._read(
                f"{quoted(self.id)} >= {low} AND {quoted(self.id)} <= {high}", columns
            )
            if len(table):
                yield one_batch(table.take(pc.sort_indices(table[self.id])))

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        wanted = ", ".join(literal(key) for key in ids) if ids else "NULL"
        return in_order(self._read(f"{quoted(self.id)} IN ({wanted})", columns), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        dataset = self._now()
        missing = [c for c in columns if c.name not in dataset.schema.names]
        if missing:
            fields = [pa.field(check_name(c.name), c.arrow) for c in missing]
            with telling(self.name):
                dataset.add_columns(pa.schema(fields))

    def drop_columns(self, names: Sequence[str]) -> None:
        dataset = self._now()
        there = [name for name in names if name in dataset.schema.names]
        if there:
            with telling(self.name):
                dataset.drop_columns(there)

    def write(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        dataset = self._now()
        if TOKEN in rows.schema.names:
            with telling(self.name):
                dataset = dataset.checkout_version(rows[TOKEN][0].as_py())
            rows = rows.drop_columns([TOKEN])
        key = dataset.schema.field(self.id).type
        rows = rows.set_column(
            rows.schema.get_field_index(self.id), self.id, rows[self.id].cast(key)
        )
        with telling(self.name):
            written = write_batch(dataset, self.path, self.id, rows)
        self._tidy(SPARE)
        self._moved += written
        with telling(self.name):
            if enter_moved(self._now(), self._moved):
                self._moved = 0
        return written

    def write_all(self, columns: Sequence[str], work: Work, *, size: int = ROWS) -> Iterator[int]:
        dataset = self._now()
        added = [name for name in dataset.schema.names if name.startswith(PREFIX)]
        if can_write_columns(dataset):
            with telling(self.name):
                yield from write_columns(self._now, self.path, self.id, added, columns, work, size)

    def tally(self, column: str) -> dict[str | None, int]:
        dataset = self._now()
        with telling(self.name):
            values = dataset.to_table(columns=[column])[column]
        return {v["values"]: v["counts"] for v in values.value_counts().to_pylist()}

    def search(
        self,
        query: NDArray[np.float32],
        *,
        column: str,
        k: int,
        where: Where | None = None,
        missing: str | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        dataset = self._now()
        terms = []
        for name, values in check_where(where, tuple(dataset.schema.names)).items():
            terms.append(f"{quoted(name)} IN ({', '.join(map(literal, values))})")
        if missing is not None:
            terms.append(f"{quoted(missing)} IS NULL")
        nearest = {"column": column, "q": np.asarray(query, np.float32), "k": k}
        nearest["metric"] = self.metric
        with telling(self.name):
            found = dataset.scanner(
                nearest=nearest,
                # Rows without a vector are left out by the search itself.
                filter=" AND ".join(terms) or None,
                prefilter=True,
                columns=[self.id, *columns, "_distance"],
            ).to_table()
        return [
            Hit(row[self.id], score(self.metric, row["_distance"]), {c: row[c] for c in columns})
            for row in found.to_pylist()
        ]

    def build_index(self, column: str) -> None:
        self._tidy()
        dataset = self._now()
        with telling(self.name):
            rows = dataset.count_rows(f"{quoted(column)} IS NOT NULL")
        if rows < _INDEX_FROM_ROWS:
            return
        with telling(self.name):
            dataset.create_index(
                column,
                "IVF_HNSW_SQ",
                metric=self.metric,
                num_partitions=max(1, round(math.sqrt(rows) / 32)),
                replace=True,
            )

    def promote(self, column: str, drop: Sequence[str]) -> str:
        names = self._now().schema.names
        if column in names:
            self.drop_columns([n for n in (self.vector, *drop) if n != column])
            with telling(self.name):
                self._now().alter_columns({"path": column, "name": self.vector})
        self._tidy()
        return self.vector

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    def lock(self) -> AbstractContextManager[None]:
        return folder_lock(self._beside("lock"), self.name)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        return statements(self.id, self.vector, self.metric, columns, _INDEX_FROM_ROWS)

    def close(self) -> None:
        """Nothing is held open."""

    def _now(self) -> Any:
        """The table as it is at this moment, with all that anyone has written."""
        try:
            import lance
        except ImportError as error:
            raise MissingExtra("pylance", extra="lance", need="a LanceDB store") from error
        with telling(self.name):
            return lance.dataset(str(self.path))

    def _tidy(self, spare: int = 0) -> None:
        dataset = self._now()
        with telling(self.name):
            tidy(dataset, spare)

    def _read(self, condition: str, columns: Sequence[str]) -> pa.Table:
        dataset = self._now()
        wanted = list(dict.fromkeys([self.id, *columns]))
        with telling(self.name):
            table = dataset.to_table(columns=wanted, filter=condition)
        return table.append_column(TOKEN, pa.array(np.full(len(table), dataset.version, np.int64)))

    def _beside(self, what: str) -> Path:
        """A file of ours next to the table, so that the table's own folder stays Lance's."""
        return beside(self.path, what)

    def _index_metric(self) -> Metric | None:
        dataset = self._now()
        with telling(self.name):
            for index in dataset.describe_indices():
                if self.vector in index.field_names:
                    found = dataset.stats.index_stats(index.name)["indices"]
                    name = str(found[0].get("metric_type", "")) if found else ""
                    known: dict[str, Metric] = {"cosine": "cosine", "l2": "l2", "dot": "dot"}
                    return known.get(name)
        return None
