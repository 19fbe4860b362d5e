"""Qdrant: a collection on a server (1.18 or newer), or in a folder by the client's local mode.

The shared vectors become a named vector of the same collection, bookkeeping goes into payload
fields that begin with `crossfade_`. An upsert by the application replaces a whole point, and so
takes these away with the old content: such a row counts as new. Under cosine Qdrant keeps vectors
at length one.

Rows go in pieces, first their vectors, then their bookkeeping, and a row counts as written when it
has the latter. Qdrant has no version of a row: the token is a hash of the old vector and of the
application's payload, which `write` compares just before it writes. A point that is upserted in the
instant between is not written: a mark is put on it before the look, which an upsert takes away, and
every operation of the write is on condition of the mark. Local mode has none: there bookkeeping is
taken back from a point that lost its vector before it got it. A vector or a field that is changed
by itself in that instant is not noticed by the write, but by the row's fingerprints at the next
look; a deleted row does not come back even then.

Ids are those of the points, integers or UUIDs. A single vector without a name is called `vector`
here; when it is promoted it really gets that name. A server goes on taking vectors without a name
when there is a named one beside them; local mode does not, so it is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
    Change,
    Column,
    Description,
    Hit,
    Id,
    Obstacle,
    OwnVectors,
    Where,
    Work,
)
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import PREFIX, check_name
from crossfade.stores.qdrant.client import Database, connect, translate_errors
from crossfade.stores.qdrant.points import PIECE, Points
from crossfade.stores.qdrant.rows import (
    UNNAMED,
    Numbers,
    check_collection,
    condition,
    point_id,
    tokens,
    values_of,
    vector_of,
)
from crossfade.stores.qdrant.schema import (
    params_of,
    real_name,
    refuse_unnamed,
    the_distance,
    the_vector,
)
from crossfade.stores.qdrant.state import State, named
from crossfade.stores.rows import ids_alone, matrix

_PROMOTING = "promoting"
# `begun` when points lose their old vectors to us, and not to the application alone; then `gone`.
_LEAVING = "leaving"
_COPIED = "copied"
_SAMPLE = 100
# Of a collection that an application writes old vectors to all the time.
_PASSES = 100


class QdrantStore:
    """A collection of a Qdrant."""

    kind = "qdrant"
    id = "id"

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self._collection = check_collection(collection)
        self._database = self._reach(url)
        self.name = self._named()
        try:
            if id not in (None, self.id):
                raise BadInput(
                    f"{id!r} cannot be the id", where=self.name, step="Qdrant's own ids are used"
                )
            self._client = self._database.client
            self._state = self._values()
            self._points = Points(self._client, collection, self.name)
            with translate_errors(self.name):
                if not self._client.collection_exists(collection):
                    raise BadInput("there is no such collection", where=self.name)
            vectors, promoting = self._points.vectors(), self._state.get(_PROMOTING)
            self.vector = the_vector(vectors, vector, promoting, self.name)
            # What Qdrant itself calls the old vector.
            self._real = real_name(vectors, self.vector)
            found = params_of(vectors, self._real)
            self.distance: Distance = the_distance(found, self.vector, distance, self.name)
        except BaseException:
            self._database.close()
            raise

    def _reach(self, url: str) -> Database:
        return connect(url)

    def _named(self) -> str:
        return f"{self._database.name}#{self._collection}"

    def _values(self) -> State:
        return State(self._database, self._collection)

    def describe(self) -> Description:
        vectors = self._points.vectors()
        with translate_errors(self.name):
            info = self._client.get_collection(self._collection)
            some, _ = self._client.scroll(self._collection, limit=_SAMPLE)
        fields = [*info.payload_schema, *(key for record in some for key in record.payload)]
        own = [name for name in dict.fromkeys(fields) if not name.startswith(PREFIX)]
        return Description(
            kind=self.kind,
            name=self.name,
            rows=self._points.count(),
            id=self.id,
            id_type="text" if some and isinstance(some[0].id, str) else "integer",
            vector=self.vector,
            dim=int(params_of(vectors, self._real).size),
            distance=self.distance,
            columns=(self.id, self.vector, *own),
            added=tuple(
                name
                for name, column in self._state.columns().items()
                if column.kind != "vector" or name in vectors
            ),
            indexed=tuple(vectors) if info.indexed_vectors_count else (),
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        key = None if after is None else point_id(after)
        kind: type | None = None
        kept = None if missing is None else self._missing(missing)
        while True:
            vectors = self._points.vectors()
            read, whole = self._vectors_read(columns, vectors), bool(columns)
            records = self._points.after(key, size, kept, vectors=read, whole=whole)
            if not records:
                return
            kind = kind or type(records[0].id)
            if any(type(record.id) is not kind for record in records):
                raise BadInput(
                    "has integers and UUIDs as ids", where=self.name, step="use one of the two"
                )
            ids = pa.array([record.id for record in records])
            yield self._batch(records, columns, vectors) if whole else ids_alone(self.id, ids)
            key = records[-1].id

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        vectors = self._points.vectors()
        records = self._points.given(ids, self._vectors_read(columns, vectors))
        return self._batch(records, columns, vectors)

    def add_columns(self, columns: Sequence[Column]) -> None:
        added = self._state.columns()
        for column in columns:
            if check_name(column.name) in added:
                continue
            if column.kind == "vector":
                if self._real == UNNAMED and self._database.folder is not None:
                    refuse_unnamed(self.name)
                distance = self._points.vectors()[self._real].distance
                self._points.create_vector(column.name, column.dim, distance)
            elif self._database.folder is None:
                schema = "keyword" if column.kind == "text" else "integer"
                with translate_errors(self.name):
                    self._client.create_payload_index(self._collection, column.name, schema)
            added[column.name] = column
        self._state.remember(added)

    def drop_columns(self, names: Sequence[str]) -> None:
        added, vectors = self._state.columns(), self._points.vectors()
        if self._marks:
            self._points.unmark()
        for name in names:
            # A vector may be there and not yet be noted, if its making was cut short.
            if name in vectors and name.startswith(PREFIX):
                self._points.delete_vector(name)
            elif name in added and added[name].kind != "vector":
                self._points.drop_field(name, indexed=self._database.folder is None)
        self._state.remember({n: c for n, c in added.items() if n not in names})

    def write(self, rows: pa.RecordBatch) -> int:
        added = self._state.columns()
        vectors = {n: matrix(rows[n]) for n, c in added.items() if c.kind == "vector"}
        fields = {n: rows[n].to_pylist() for n, c in added.items() if c.kind != "vector"}
        ids = [point_id(key) for key in rows[self.id].to_pylist()]
        given = rows[TOKEN].to_pylist() if TOKEN in rows.schema.names else None
        empty = {n: ~rows[n].is_valid().to_numpy(zero_copy_only=False) for n in vectors}
        written, params = 0, self._points.vectors()
        for first in range(0, len(rows), PIECE):
            row_of = {key: first + n for n, key in enumerate(ids[first : first + PIECE])}
            known = [key for key in row_of if key is not None]
            # Before the look: a point that is replaced from here on has lost it.
            mark = self._points.mark(known) if self._marks else None
            now = self._points.given(known, self._vectors_read([], params))
            seen = tokens(now, self._numbers(now, params)).to_pylist()
            told, taken, before = {}, [], set()
            for record, token in zip(now, seen, strict=True):
                key, at = record.id, row_of[record.id]
                if given is not None and given[at] != token:
                    continue
                if any(name in (record.payload or {}) for name in fields):
                    before.add(key)
                if any(nothing[at] for nothing in empty.values()):
                    taken.append(key)
                else:
                    told[key] = (
                        {name: values[at].tolist() for name, values in vectors.items()},
                        {name: values[at] for name, values in fields.items()},
                    )
            self._points.clear(taken, list(vectors), list(fields))
            written += self._points.update(told, mark, before) + len(taken)
        if self._marks:
            self._points.unmark([key for key in ids if key is not None])
        return written

    def erase(self, rows: pa.RecordBatch) -> int:
        given = dict(
            zip(map(point_id, rows[self.id].to_pylist()), rows[TOKEN].to_pylist(), strict=True)
        )
        now = self.read([key for key in given if key is not None], [])
        told = zip(now[self.id].to_pylist(), now[TOKEN].to_pylist(), strict=True)
        same = [key for key, token in told if given[key] == token]
        added = self._state.columns()
        vectors = [n for n, c in added.items() if c.kind == "vector"]
        self._points.clear(same, vectors, [n for n in added if n not in vectors])
        return len(same)

    def tally(self, column: str) -> dict[str | None, int]:
        with translate_errors(self.name):
            found = self._client.facet(self._collection, column, limit=1000, exact=True).hits
        counts: dict[str | None, int] = {str(hit.value): hit.count for hit in found}
        if rest := self._points.count() - sum(counts.values()):
            counts[None] = rest
        return counts

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
        if column != self.vector and self._is_leaving():
            column = self.vector
        kept = condition(where, self._points.has_field, self._points.models)
        if missing is not None:
            kept.append(self._missing(missing))
        vectors = [name for name in columns if name == self.vector or name.startswith(PREFIX)]
        vectors = [name for name in vectors if self._called(name) in self._points.vectors()]
        with translate_errors(self.name):
            points = self._client.query_points(
                self._collection,
                query=np.asarray(query, np.float32).tolist(),
                using=self._called(column) or None,
                limit=k,
                query_filter=self._points.models.Filter(must=kept) if kept else None,
                with_payload=bool(columns),
                with_vectors=[self._called(name) for name in vectors] if vectors else False,
            ).points
        return [
            Hit(
                point.id,
                -(point.score**2) if self.distance == "l2" else point.score,
                {
                    name: vector_of(point, self._called(name))
                    if name in vectors
                    else point.id
                    if name == self.id
                    else (point.payload or {}).get(name)
                    for name in columns
                },
            )
            for point in points
        ]

    def build_index(self, column: str) -> None:
        """Nothing to ask for: a server indexes vectors as they come, local mode never does."""

    def version(self) -> str | None:
        """Qdrant has no version of a collection: one must look."""
        return None

    def activity(self) -> str | None:
        return None

    def duplicates(self) -> list[Id]:
        """Ids of points are unique."""
        return []

    def obstacles(self) -> list[Obstacle]:
        return []

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        """Make the old vector anew with the shared vectors in it, then drop the shared one.

        From the first moment to the last the old name finds nothing or a part: searches go by
        `column` until this is done. Killed, it starts again from the shared vectors, which go last.
        A point that comes in the instant between the last look and the end of the old vectors is
        left without a vector.
        """
        vectors = self._points.vectors()
        # Dropping a vector is no single step everywhere: once all are copied, there is no way back
        # to where they came from.
        if column in vectors and self._state.get(_COPIED) is None:
            if self._takes_old(vectors):
                whole = self._old_is_there(column, vectors)
                self._state.put(_PROMOTING, self.vector)
                self._settle(columns, work, whole=whole)
                self._state.put(_LEAVING, "begun")
            if self._state.get(_LEAVING) != "gone":
                self._points.delete_vector(self._real)
                self._state.put(_LEAVING, "gone")
            self._real = self.vector
            shared, added = vectors[column], self._state.columns()
            self._points.create_vector(self.vector, shared.size, shared.distance)
            fields = [name for name, one in added.items() if one.kind != "vector"]
            self._points.move(column, self.vector, fields)
            self._state.put(_COPIED, self.vector)
        self.drop_columns([column, *drop])
        for key in (_PROMOTING, _LEAVING, _COPIED):
            self._state.put(key, None)
        return self.vector

    def withdraw(self, column: str) -> None:
        vectors = self._points.vectors()
        if column not in vectors or not self._old_is_there(column, vectors):
            raise StoreError("the old vectors are gone", where=self.name)
        for key in (_PROMOTING, _LEAVING):
            self._state.put(key, None)

    def own_vectors(self, column: str) -> OwnVectors:
        """By the points: the old vectors go before the first of the new ones has their name."""
        vectors = self._points.vectors()
        if column not in vectors or self._state.get(_COPIED) is not None:
            return "new"
        if self._takes_old(vectors):
            return "old" if self._old_is_there(column, vectors) else "neither"
        whole = self.vector in vectors and not self._lacks(self.vector, column)
        return "new" if whole else "neither"

    def _takes_old(self, vectors: Mapping[str, Any]) -> bool:
        """Whether the collection still takes old vectors, promotion begun or not."""
        return self._real in vectors and self._state.get(_LEAVING) != "gone"

    def _old_is_there(self, column: str, vectors: Mapping[str, Any]) -> bool:
        """Whether a promotion, if there was one, was cut short before the old vectors went.

        They may go point by point: one that has a shared vector and no old one tells, once they
        are on their way. Until then it is the application that has taken it.
        """
        if self._state.get(_PROMOTING) is None:
            return True
        if not self._takes_old(vectors):
            return False
        if self._state.get(_LEAVING) is None:
            return True
        return not self._lacks(self._real, column)

    def _lacks(self, real: str, column: str) -> bool:
        """Whether any point that has the shared vector is without another."""
        lacking = self._points.models.Filter(
            must=[self._points.models.HasVectorCondition(has_vector=column)],
            must_not=[self._points.models.HasVectorCondition(has_vector=real)],
        )
        with translate_errors(self.name):
            return bool(self._client.scroll(self._collection, lacking, limit=1)[0])

    def _settle(self, columns: Sequence[str], work: Work, *, whole: bool) -> None:
        """Show every row to `work` until it has nothing to do; where some old vectors are gone
        already, those alone that have one: of the others none was taken by the application."""
        for _ in range(_PASSES):
            idle = True
            for rows in self.stream(columns):
                shown = rows if whole else rows.filter(rows[self.vector].is_valid())
                made = work(shown) if len(shown) else None
                if made is not None:
                    idle = False
                    self.write(made)
            if idle:
                return
        raise StoreError(
            "rows change faster than they can be written",
            where=self.name,
            step="finish again when the collection is calmer",
        )

    def _missing(self, column: str) -> Any:
        if column in self._points.vectors():
            return self._points.models.Filter(
                must_not=[self._points.models.HasVectorCondition(has_vector=column)]
            )
        return self._points.models.IsEmptyCondition(
            is_empty=self._points.models.PayloadField(key=column)
        )

    def get(self, key: str) -> str | None:
        return self._state.get(named(key))

    def put(self, key: str, value: str | None) -> None:
        self._state.put(named(key), value)

    def lock(self) -> AbstractContextManager[None]:
        if self._database.folder is None:
            return self._state.lease()
        return folder_lock(self._database.folder / f".{self._collection}.crossfade.lock", self.name)

    def change(self, key: str, change: Change) -> str | None:
        return self._state.change(named(key), change)

    def join(self, mark: str) -> AbstractContextManager[None]:
        if self._database.folder is not None:
            raise BadInput(
                "a folder is open to one process at a time",
                where=self.name,
                step="use a Qdrant server, or go without --join",
            )
        return self._state.joined()

    def disown(self, mark: str) -> None:
        """Nothing to be done: a server knows no worker, and each looks before it writes whether
        its lease is still its own."""

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        path = f"/collections/{self._collection}"
        shared, fields = columns[0], ", ".join(c.name for c in columns[1:])
        write = [f"POST {path}/points/batch  -- update_vectors {shared.name}; set_payload {fields}"]
        drop = [
            f"DELETE {path}/vectors/{shared.name}",
            f"POST {path}/points/payload/delete  -- {fields}",
        ]
        old = self._real or "(unnamed)"
        return {
            "start": [f"PUT {path}/vectors/{shared.name}  -- {shared.dim} dimensions"],
            "forward": write,
            "backfill": write,
            "finish": [
                f"DELETE {path}/vectors/{old}",
                f"PUT {path}/vectors/{self.vector}  -- {shared.dim} dimensions",
                f"PUT {path}/points/vectors  -- {self.vector} from {shared.name}",
                *drop,
            ],
            "rollback": drop,
        }

    def close(self) -> None:
        self._database.close()

    def _is_leaving(self) -> bool:
        """Whether the shared vector may have lost points already; the promoted one has them all.

        A server drops a vector in one step. Local mode does it point by point, and is asked here.
        """
        return self._database.folder is not None and self._state.get(_COPIED) is not None

    @property
    def _marks(self) -> bool:
        """Whether a write is on condition of marks. In local mode one process has the folder, and
        every condition is a look at all points."""
        return self._database.folder is None

    def _called(self, column: str) -> str:
        """Qdrant's own name of a vector."""
        return self._real if column == self.vector else column

    def _vectors_read(self, columns: Sequence[str], vectors: Mapping[str, Any]) -> bool | list[str]:
        """What is read of a point's vectors: the old one, of which its token is made, and those
        that are asked for."""
        if self._real == UNNAMED:
            return True
        wanted = {self._real, *map(self._called, columns)}
        return [name for name in vectors if name in wanted]

    def _written(self, record: Any, added: Mapping[str, Column]) -> Any:
        """A point without its added vector if it has no bookkeeping: it was not written whole."""
        fields = [name for name, column in added.items() if column.kind != "vector"]
        if any(name in (record.payload or {}) for name in fields):
            return record
        return record.model_copy(update={"vector": {}})

    def _numbers(self, records: Sequence[Any], vectors: Mapping[str, Any]) -> Numbers:
        """The old vectors of points."""
        return Numbers.of(records, self._real, int(params_of(vectors, self._real).size))

    def _batch(
        self, records: Sequence[Any], columns: Sequence[str], vectors: Mapping[str, Any]
    ) -> pa.RecordBatch:
        """Points as the contract wants them: (id, *columns, TOKEN)."""
        added = self._state.columns()
        out: dict[str, Any] = {self.id: pa.array([record.id for record in records])}
        old = self._numbers(records, vectors)
        for name in columns:
            if name == self.vector or name in vectors:
                real = self._called(name)
                if real not in vectors:
                    raise StoreError(
                        f"has no vector {name!r} at the moment: it is being promoted",
                        where=self.name,
                        step="try again when `finish` is done",
                    )
                shown = [self._written(r, added) for r in records] if name in added else records
                found = old
                if name != self.vector:
                    found = Numbers.of(shown, real, int(vectors[real].size))
                out[name] = found.column(unit=self.distance == "cosine")
            elif name != self.id:
                kind = added[name].arrow if name in added else None
                out[name] = values_of(records, name, kind, self.name)
        out[TOKEN] = tokens(records, old)
        return pa.RecordBatch.from_pydict(out)
