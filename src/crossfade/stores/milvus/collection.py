"""The rows of one collection: the calls to Milvus that a migration needs, in pieces.

What is read before something is written is read by Strong consistency: all that was written before
the call is seen, whoever wrote it. Searches go by the consistency level of the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import StoreError
from crossfade.stores.contract import Id
from crossfade.stores.milvus.client import Database
from crossfade.stores.milvus.rows import Row, both, literal, one_of
from crossfade.stores.milvus.schema import Shape
from crossfade.threads import all_at_once

# Milvus gives and finds no more rows than this in one call.
MOST = 16_384
STRONG = "Strong"
# What this process has written is seen, and nobody is waited for.
SESSION = "Session"
# A call brings so many bytes of vectors, and so many ids.
_BYTES = 32 << 20
_IDS = 4_096
_OTHERS = 1_000


class Collection:
    """The rows of a collection, as the client sees them."""

    def __init__(self, database: Database, name: str) -> None:
        self.database, self.name = database, name
        self.shape = Shape.of(database, name)

    @property
    def all_fields(self) -> list[str]:
        """What a row is read with, to be known again or written elsewhere."""
        kept = [name for name, field in self.shape.fields.items() if not field.made]
        return ["*", *kept] if self.shape.dynamic else kept

    def count(self, expression: str = "", level: str | None = STRONG) -> int:
        found = self._query(expression, ["count(*)"], level=level)
        return int(found[0]["count(*)"])

    def pages(
        self,
        fields: Sequence[str],
        *,
        after: Id | None = None,
        size: int = MOST,
        partition: str | None = None,
    ) -> Iterator[list[Row]]:
        """Rows in ascending order of id, those after one, in pages; one that is not full is no
        sign of the end."""
        key = after
        while True:
            page = self.page(fields, key, min(size, self._piece(fields)), partition)
            if page:
                yield page
                key = page[-1][self.shape.id]
            else:
                return

    def page(
        self,
        fields: Sequence[str],
        after: Id | None,
        size: int,
        partition: str | None = None,
    ) -> list[Row]:
        """The next rows. Milvus gives them in order of id to whoever says that he iterates; that
        none is passed over is not taken on trust."""
        id = self.shape.id
        # An expression is needed, also where every row meets it.
        lowest = '""' if self.shape.id_type == "text" else str(-(2**63) + 1)
        first = f"{id} >= {lowest}" if after is None else f"{id} > {literal(after)}"
        found = self._query(first, fields, limit=size, partition=partition, iterator="True")
        rows = sorted(found, key=lambda row: row[id])
        if len(rows) == size and self.database.file is None:
            within = both(first, f"{id} <= {literal(rows[-1][id])}")
            if len(rows) < self._distinct(within, partition, size):
                raise StoreError(
                    "this server gives rows in no order, so that some would be passed over",
                    where=f"{self.database.name}#{self.name}",
                    step="upgrade it to Milvus 2.3 or newer",
                )
        return rows

    def given(
        self, ids: Sequence[Id], fields: Sequence[str], *, where: str = "", level: str | None
    ) -> dict[Id, Row]:
        """The rows of these ids that are there, and meet an expression."""
        looks = self.looks(ids, fields, where=where, level=level)
        # Each waits until all that was written before is seen: for the same moment.
        return self.merged(all_at_once(looks) if level == STRONG else [look() for look in looks])

    def looks(
        self, ids: Sequence[Id], fields: Sequence[str], *, where: str = "", level: str | None
    ) -> list[Callable[[], list[Row]]]:
        """The calls that bring the rows of these ids."""
        kind = str if self.shape.id_type == "text" else int
        known = [key for key in ids if type(key) is kind]
        piece = min(_IDS, self._piece(fields))
        told = [
            both(one_of(self.shape.id, known[first : first + piece]), where)
            for first in range(0, len(known), piece)
        ]
        return [partial(self._query, one, fields, level=level) for one in told]

    def merged(self, pages: Iterable[Sequence[Row]]) -> dict[Id, Row]:
        """Rows by their ids."""
        return {row[self.shape.id]: row for page in pages for row in page}

    def between(self, first: Id, last: Id, fields: Sequence[str]) -> dict[Id, Row]:
        """The rows whose ids are from one to another, both included."""
        id = self.shape.id
        told = both(f"{id} >= {literal(first)}", f"{id} <= {literal(last)}")
        return {row[id]: row for row in self._query(told, fields)}

    def ids(self, expression: str, limit: int, level: str | None) -> list[Id]:
        """Ids of rows that meet an expression, at most so many."""
        found = self._query(expression, [self.shape.id], limit=limit, level=level)
        return [row[self.shape.id] for row in found]

    def put(
        self, rows: Sequence[Row], *, fresh: bool = False, partition: str | None = None
    ) -> None:
        """Write whole rows; `fresh` ones are known not to be there, which is quicker."""
        piece = self._piece(["*"])
        more = {} if partition is None else {"partition_name": partition}
        for first in range(0, len(rows), piece):
            some = [dict(row) for row in rows[first : first + piece]]
            self.database.call("insert" if fresh else "upsert", self.name, some, **more)

    def delete(self, ids: Sequence[Id]) -> None:
        for first in range(0, len(ids), _IDS):
            self.database.call("delete", self.name, ids=list(ids[first : first + _IDS]))

    def search(
        self,
        query: NDArray[np.float32],
        vector: str,
        k: int,
        fields: Sequence[str],
        expression: str = "",
    ) -> list[tuple[Id, float, Row]]:
        """The nearest rows: id, what Milvus calls the distance, and some of their fields."""
        asked = [np.asarray(query, np.float32).tolist()]
        found = self.database.call(
            "search",
            self.name,
            data=asked,
            anns_field=vector,
            limit=min(k, MOST),
            filter=expression,
            output_fields=list(fields),
        )
        return [(hit[self.shape.id], float(hit["distance"]), hit["entity"]) for hit in found[0]]

    def counted_twice(self, ids: Sequence[Id], most: int) -> list[Id]:
        """Which of all the ids from the first to the last have more than one row, some of them."""
        id = self.shape.id
        told = both(f"{id} >= {literal(ids[0])}", f"{id} <= {literal(ids[-1])}")
        if self.count(told) <= len(ids):
            return []
        if len(ids) == 1:
            return list(ids)
        half = len(ids) // 2
        found = self.counted_twice(ids[:half], most)
        return found if len(found) >= most else found + self.counted_twice(ids[half:], most)

    def _distinct(self, expression: str, partition: str | None, size: int) -> int:
        """How many ids meet an expression, more than `size` or not: a number of rows would count an
        id twice that was inserted twice."""
        if self.count_in(expression, partition) <= size:
            return size
        found = self._query(expression, [self.shape.id], limit=MOST, partition=partition)
        return len({row[self.shape.id] for row in found})

    def count_in(self, expression: str, partition: str | None) -> int:
        found = self._query(expression, ["count(*)"], level="Eventually", partition=partition)
        return int(found[0]["count(*)"])

    def _query(
        self,
        expression: str,
        fields: Sequence[str],
        *,
        limit: int | None = None,
        level: str | None = STRONG,
        partition: str | None = None,
        **more: Any,
    ) -> list[Row]:
        if limit is not None:
            more["limit"] = limit
        if level is not None:
            more["consistency_level"] = level
        if partition is not None:
            more["partition_names"] = [partition]
        # Vectors as pieces of one array, and not as lists of numbers: half of the time of a page.
        more["strict_float32"] = True
        found = self.database.call(
            "query", self.name, filter=expression, output_fields=list(fields), **more
        )
        rows: list[dict[str, Any]] = [dict(row) for row in found]
        for name, field in self.shape.fields.items():
            if field.kind == "FLOAT_VECTOR":
                for row in rows:
                    if row.get(name) is not None:
                        # Once for all that look at it.
                        row[name] = np.asarray(row[name], np.float32)
        return [*rows]

    def _piece(self, fields: Sequence[str]) -> int:
        """How many rows are asked for, or sent, at once."""
        shape = self.shape
        names = list(shape.fields) if "*" in fields else fields
        if list(names) == [shape.id]:
            return MOST
        dims = sum(shape.fields[name].dim for name in names if name in shape.fields)
        return max(1, min(MOST // 2, _BYTES // (4 * dims + _OTHERS)))
