"""Batches of rows into the table beside the application's, by binary COPY.

Rows that are there for the first time are copied straight in, and those whose item was changed or
deleted since it was read are taken out again before anyone can see them. Rows that are there
already go through a staging table and one INSERT … ON CONFLICT, which writes every vector twice.

Once there is an index, entering the rows into it is nearly all of the work, and one connection is
one processor of the server: large batches go over several at a time, as many as the server would
use to build the index. None is committed before all of them are done. Rows that are near each other
are entered one after the other: they come by the same pages of the graph, which is larger than what
a server keeps at hand, and a third of the time goes into fetching those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.stores.contract import TOKEN
from crossfade.stores.postgres.catalog import Added, added_columns
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.copy import Kind, encode
from crossfade.stores.postgres.statements import (
    BEGIN,
    COMMIT,
    INDEXING_WORKERS,
    Statement,
    Statements,
)
from crossfade.stores.rows import matrix

# Types of ids whose bytes COPY takes as we have them.
_DIRECT: dict[str, Kind] = {
    "bigint": "integer",
    "integer": "int4",
    "text": "text",
    "character varying": "text",
}
# Fewer rows than this are not worth another connection, nor more connections than that a server.
_PART, _MOST = 256, 4
# Rows that the others of a batch are gathered around.
_CENTRES = 64


def write(pool: Pool, statements: Statements, rows: pa.RecordBatch) -> int:
    """Set the added columns of these rows; gives the number of rows written."""

    def work(connection: Connection) -> int:
        added = added_columns(connection, statements)
        vector = next((name for name, one in added.items() if one.kind == "vector"), None)
        parts = _parts(connection, statements, rows, vector)
        batches = [_Batch(statements, added, part) for part in parts]
        if len(batches) > 1:
            return _at_once(pool, connection, batches)
        with connection.transaction():
            return batches[0].write(connection)

    return pool.retry(work) if len(rows) else 0


def write_within(connection: Connection, statements: Statements, rows: pa.RecordBatch) -> int:
    """The same in a transaction that is open already."""
    written = _Batch(statements, added_columns(connection, statements), rows).write(connection)
    connection.execute(statements.drop_staging())
    return written


def erase(pool: Pool, statements: Statements, rows: pa.RecordBatch) -> int:
    """Take these rows out, but for those that changed since; gives how many did not."""

    def work(connection: Connection) -> int:
        with connection.transaction():
            return _Batch(statements, {}, rows).erase(connection)

    return pool.retry(work) if len(rows) else 0


def _parts(
    connection: Connection, statements: Statements, rows: pa.RecordBatch, vector: str | None
) -> list[pa.RecordBatch]:
    count = len(rows) // _PART
    # Connections that write the same id would wait for each other.
    if count > 1 and pc.count_distinct(rows[statements.id]).as_py() == len(rows):
        found = connection.execute(INDEXING_WORKERS, [statements.side_name]).fetchone()
        if found and vector in rows.schema.names:
            rows = rows.take(pa.array(by_nearness(matrix(rows[vector]))))
        count = min(count, _MOST, 1 + found[0] if found else 1)
    if count < 2:
        return [rows]
    size = -(-len(rows) // count)
    return [rows.slice(first, size) for first in range(0, len(rows), size)]


def by_nearness(vectors: NDArray[np.float32], centres: int = _CENTRES) -> NDArray[np.int64]:
    """An order of rows in which those that are near each other are so in the order, too.

    >>> by_nearness(np.array([[1, 0], [0, 9], [1, 9], [9, 1]], np.float32), centres=2).tolist()
    [0, 3, 1, 2]
    """
    step = max(1, len(vectors) // centres)
    with np.errstate(invalid="ignore", divide="ignore"):
        around = vectors[::step] / np.linalg.norm(vectors[::step], axis=1, keepdims=True)
    nearest = np.argmax(vectors @ np.nan_to_num(around).T, axis=1)
    return np.argsort(nearest, kind="stable")


def _at_once(pool: Pool, connection: Connection, batches: Sequence[_Batch]) -> int:
    """All of them, each over a connection of its own, committed when the last one is done."""
    others: list[Connection] = []
    try:
        others += [pool.lend() for _ in batches[1:]]
        everyone = [connection, *others]
        for one in everyone:
            one.execute(BEGIN)
        with ThreadPoolExecutor(len(everyone)) as threads:
            written = list(threads.map(lambda b, c: b.write(c), batches, everyone))
        for one in everyone:
            one.execute(COMMIT)
        return sum(written)
    finally:
        # Whatever was not committed is undone with its connection; the pool sees to the first.
        for one in others:
            pool.give_back(one)


class _Batch:
    """Rows on their way in; can be tried again on another connection."""

    def __init__(
        self, statements: Statements, added: Mapping[str, Added], rows: pa.RecordBatch
    ) -> None:
        self.statements, self.rows = statements, rows
        self.kinds: dict[str, Kind] = {name: one.kind for name, one in added.items()}
        self.names = [name for name in added if name in rows.schema.names]
        self.token = TOKEN in rows.schema.names
        self.span = None
        if statements.integer_ids:
            ends = pc.min_max(rows[statements.id]).as_py()
            self.span = ends["min"], ends["max"]

    def write(self, connection: Connection) -> int:
        """In the transaction that is open; gives the number of rows written."""
        with connection.cursor() as cursor:
            cursor.execute(self.statements.create_staging(self.kinds))
            if self.token and self.statements.id_type in _DIRECT and not self._is_known(cursor):
                self._copy(cursor, "staging", [TOKEN])
                if not self._asked(cursor, self.statements.any_there(self.span)):
                    self._copy(cursor, "side", self.names)
                    kept = int(self._asked(cursor, self.statements.unchanged(self.span)))
                    if kept < len(self.rows):
                        cursor.execute(self.statements.take_out_changed())
                        kept = len(self.rows) - int(cursor.rowcount)
                    return kept
                cursor.execute(self.statements.empty_staging())
            self._copy(cursor, "staging", [*self.names, *([TOKEN] if self.token else [])])
            cursor.execute(self.statements.merge(self.names, token=self.token, span=self.span))
            return int(cursor.rowcount)

    def erase(self, connection: Connection) -> int:
        """In the transaction that is open; done twice, it gives the same number."""
        with connection.cursor() as cursor:
            cursor.execute(self.statements.create_staging({}))
            self._copy(cursor, "staging", [TOKEN])
            kept = int(self._asked(cursor, self.statements.unchanged(self.span)))
            cursor.execute(self.statements.take_out_unchanged())
            return kept

    def _is_known(self, cursor: Any) -> bool:
        """Whether the first of the rows is there: then most likely all are, as while they are
        filled, and there is nothing to be gained by copying them straight in."""
        first = self.rows[self.statements.id][0].as_py()
        return bool(self._asked(cursor, self.statements.is_there(first)))

    def _asked(self, cursor: Any, question: Statement) -> Any:
        return cursor.execute(question).fetchone()[0]

    def _copy(self, cursor: Any, into: str, names: Sequence[str]) -> None:
        own = _DIRECT[self.statements.id_type] if into == "side" else self.statements.id_kind
        kinds: list[Kind] = [own, *(self.kinds.get(name, "integer") for name in names)]
        given = [self.statements.id, *names]
        with cursor.copy(self.statements.copy_in(given, into)) as copy:
            copy.write(encode([self.rows[name] for name in given], kinds))
