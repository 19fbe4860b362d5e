"""Batches of rows into the table beside the application's, by binary COPY.

Rows that are there for the first time are copied straight in, and those whose item was changed or
deleted since it was read are taken out again before anyone can see them. Rows that are there
already go through a staging table and one INSERT … ON CONFLICT, which writes every vector twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crossfade.stores.contract import TOKEN
from crossfade.stores.pgcopy import Kind, encode
from crossfade.stores.pgsession import Connection
from crossfade.stores.pgstatements import Said, Statements

# Types of ids whose bytes COPY takes as we have them.
_DIRECT: dict[str, Kind] = {
    "bigint": "integer",
    "integer": "int4",
    "text": "text",
    "character varying": "text",
}


class Writing:
    """One batch on its way in; can be tried again on another connection."""

    def __init__(self, words: Statements, added: Mapping[str, Kind], rows: pa.RecordBatch) -> None:
        self.words, self.added, self.rows = words, added, rows
        self.names = [name for name in added if name in rows.schema.names]
        self.token = TOKEN in rows.schema.names
        self.span = None
        if words.integer_ids:
            ends = pc.min_max(rows[words.id]).as_py()
            self.span = ends["min"], ends["max"]

    def __call__(self, connection: Connection) -> int:
        """In one transaction; gives the number of rows written."""
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(self.words.staging(self.added))
            if self.token and self.words.id_type in _DIRECT:
                self._copy(cursor, "staging", [TOKEN])
                if not self._asked(cursor, self.words.any_there(self.span)):
                    self._copy(cursor, "side", self.names)
                    kept = int(self._asked(cursor, self.words.unchanged(self.span)))
                    if kept < len(self.rows):
                        cursor.execute(self.words.take_out_changed())
                        kept = len(self.rows) - int(cursor.rowcount)
                    return kept
                cursor.execute(self.words.say("TRUNCATE crossfade_staging"))
            self._copy(cursor, "staging", [*self.names, *([TOKEN] if self.token else [])])
            cursor.execute(self.words.merge(self.names, token=self.token, span=self.span))
            return int(cursor.rowcount)

    def _asked(self, cursor: Any, question: Said) -> Any:
        return cursor.execute(question).fetchone()[0]

    def _copy(self, cursor: Any, into: str, names: Sequence[str]) -> None:
        own = _DIRECT[self.words.id_type] if into == "side" else self.words.id_kind
        kinds: list[Kind] = [own, *(self.added.get(name, "integer") for name in names)]
        given = [self.words.id, *names]
        with cursor.copy(self.words.copy_in(given, into)) as copy:
            copy.write(encode([self.rows[name] for name in given], kinds))
