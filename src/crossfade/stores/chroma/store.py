"""Chroma: a collection in a folder of its persistent client, or on its server.

A collection has one vector a row and one dimension, so the added columns live in a collection
beside it, `crossfade_shared_NAME`: the shared vector is its embedding, the other columns are its
metadata. It holds rows that are lifted or filled, and no others. Which rows there are is what the
application's own collection says: what it has deleted is passed over here.

Chroma has no version of a row: the token is a hash of the old vector and of all that the
application keeps with it, which `write` compares just before it writes. A change in the instant
between leaves the fingerprints of a row behind, and the next look at it finds them.

Ids are text. Chroma has no order of its own: a stream reads all ids at once, sorts them, and then
reads the rows, so that the ids of a collection must fit into memory, as its vectors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreBusy, StoreError
from crossfade.stores.chroma.client import connect, refuse_held
from crossfade.stores.chroma.collection import Collection
from crossfade.stores.chroma.promote import (
    DRESSING,
    DROPPING,
    NEW,
    RETURNING,
    STRIPPING,
    SWAPPED,
    SWAPPING,
    Exchange,
    Intention,
)
from crossfade.stores.chroma.rows import (
    DOCUMENT,
    ID,
    OWN,
    URI,
    VECTOR,
    Records,
    beside,
    check_collection,
    condition,
)
from crossfade.stores.chroma.state import State, named
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
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
from crossfade.stores.names import PREFIX, check_name, check_where
from crossfade.stores.rows import ids_alone, matrix, score

_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "l2": "l2", "ip": "dot"}
_SAMPLE = 100
# Of a filtered search on shared vectors: so many times the rows wanted are looked at first.
_DEEPER, _DEEPEST = 4, 1000
_PASSES = 100
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Collections:
    """Who is who at the moment: `main` says which rows there are, `old` holds their old vectors
    and `shared` what was added. After a switch `main` is `shared`, and `old` is on its way out."""

    main: Collection
    old: Collection
    shared: Collection | None


class ChromaStore:
    """A collection of Chroma."""

    kind = "chroma"
    id = ID
    vector = VECTOR

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
        self._database = connect(url)
        self.name = f"{self._database.name}#{collection}"
        self._fields: set[str] = set()
        try:
            for given, own, what in ((id, ID, "id"), (vector, VECTOR, "vector")):
                if given not in (None, own):
                    raise BadInput(
                        f"{given!r} cannot be the {what}",
                        where=self.name,
                        step=f"Chroma's own is used, {own!r}",
                    )
            self._state = State(self._database, collection)
            self._mend()
            self._at = self._resolve()
            space = self._at.main.space
            if space not in _DISTANCES:
                raise BadInput(f"compares by {space!r}, which is not known", where=self.name)
            self.distance: Distance = _DISTANCES[space]
            if distance not in (None, self.distance):
                raise BadInput(f"compares by {self.distance}, not by {distance}", where=self.name)
        except BaseException:
            self._database.close()
            raise

    def describe(self) -> Description:
        return self._again(self._describe)

    def _describe(self) -> Description:
        at, added = self._at, self._state.columns()
        sample = at.main.sample(_SAMPLE)
        self._fields |= {name for n in range(len(sample)) for name in sample.own(n)}
        columns = [ID, VECTOR]
        columns += [DOCUMENT] if any(one is not None for one in sample.documents) else []
        columns += [URI] if any(one is not None for one in sample.uris) else []
        vectors = [name for name, column in added.items() if column.kind == "vector"]
        return Description(
            kind=self.kind,
            name=self.name,
            rows=at.main.count(),
            id=self.id,
            id_type="text",
            vector=self.vector,
            dim=at.old.dim(),
            distance=self.distance,
            columns=(*columns, *sorted(self._fields - set(OWN))),
            added=tuple(added),
            indexed=(self.vector, *vectors),
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        ids = self._again(self._at_main_ids)
        if missing is not None:
            ids -= self._again(lambda: self._holding(missing))
        # Text sorts by code point in Python; in Arrow it takes a fifth of the room.
        left = pa.array(sorted(ids if after is None else {i for i in ids if i > str(after)}))
        del ids
        for first in range(0, len(left), size):
            part = left.slice(first, size).to_pylist()
            page = self._page if columns else self._ids_of
            rows = self._again(partial(page, part, columns))
            if len(rows):
                yield rows

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        known = [key for key in ids if isinstance(key, str) and key]
        return self._again(partial(self._page, known, columns))

    def _page(self, ids: Sequence[str], columns: Sequence[str]) -> pa.RecordBatch:
        return self._batch(self._at.main, ids, columns)

    def _ids_of(self, ids: Sequence[str], _: Sequence[str]) -> pa.RecordBatch:
        there = self._at.main.present(ids)
        return ids_alone(self.id, pa.array([key for key in ids if key in there], pa.string()))

    def add_columns(self, columns: Sequence[Column]) -> None:
        added = self._state.columns()
        fresh = {check_name(c.name): c for c in columns if c.name not in added}
        vectors = [c for c in (*added.values(), *fresh.values()) if c.kind == "vector"]
        if len(vectors) > 1:
            raise BadInput("holds one added vector at a time", where=self.name)
        if vectors and self._at.shared is None:
            name = beside("shared", self._collection)
            # What a start that was cut short has left holds nothing.
            if self._database.find(name) is None:
                main = self._at.main
                self._database.create(name, like=main, notes=main.metadata)
        self._state.remember(added | fresh)
        self._at = self._resolve()

    def drop_columns(self, names: Sequence[str]) -> None:
        left = {n: c for n, c in self._state.columns().items() if n not in names}
        if not any(column.kind == "vector" for column in left.values()):
            # The columns of a finished promotion have gone with it.
            there = self._database.find(beside("shared", self._collection))
            if there is not None and there.uid != self._at.main.uid:
                self._database.remove(there.name)
        self._state.remember(left)
        self._at = self._resolve()

    def write(self, rows: pa.RecordBatch) -> int:
        return self._again(lambda: self._write(self._at.main, rows))

    def _write(self, main: Collection, rows: pa.RecordBatch) -> int:
        shared, added = self._shared(), self._state.columns()
        vector = next(name for name, column in added.items() if column.kind == "vector")
        vectors = matrix(rows[vector])
        empty = ~rows[vector].is_valid().to_numpy(zero_copy_only=False)
        fields = {n: rows[n].to_pylist() for n, c in added.items() if c.kind != "vector"}
        ids = rows[self.id].to_pylist()
        given = rows[TOKEN].to_pylist() if TOKEN in rows.schema.names else None
        row_of = {key: at for at, key in enumerate(ids) if key}
        if given is None:
            there = main.present(list(row_of))
            same = [at for key, at in row_of.items() if key in there]
        else:
            now = main.get(list(row_of))
            told = zip(now.ids, now.tokens().tolist(), strict=True)
            same = [row_of[key] for key, token in told if given[row_of[key]] == token]
        shared.delete([ids[at] for at in same if empty[at]])
        kept = [at for at in same if not empty[at]]
        metadatas = [{name: values[at] for name, values in fields.items()} for at in kept]
        shared.upsert(Records.made([ids[at] for at in kept], vectors[kept], metadatas))
        return len(same)

    def erase(self, rows: pa.RecordBatch) -> int:
        return self._again(lambda: self._erase(rows))

    def _erase(self, rows: pa.RecordBatch) -> int:
        given = dict(zip(rows[self.id].to_pylist(), rows[TOKEN].to_pylist(), strict=True))
        now = self._at.main.get(list(given))
        told = zip(now.ids, now.tokens().tolist(), strict=True)
        same = [key for key, token in told if given[key] == token]
        self._shared().delete(same)
        return len(same)

    def tally(self, column: str) -> dict[str | None, int]:
        return self._again(lambda: self._tally(column))

    def _tally(self, column: str) -> dict[str | None, int]:
        if column not in self._state.columns():
            raise BadInput(f"has no column {column!r}", where=self.name)
        there = self._at_main_ids()
        counts: dict[str | None, int] = {}
        for value, ids in self._by_value(column).items():
            if number := len(there & ids):
                counts[value] = number
        if rest := len(there) - sum(counts.values()):
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
        return self._again(lambda: self._search(query, column, k, where, missing, columns))

    def _search(
        self,
        query: NDArray[np.float32],
        column: str,
        k: int,
        where: Where | None,
        missing: str | None,
        columns: Sequence[str],
    ) -> list[Hit]:
        at, kept = self._at, self._condition(where)
        if kept is False:
            return []
        target = at.old if column == self.vector else self._shared(column)
        among: list[str] | None = None
        if missing is not None:
            among = sorted(self._at_main_ids() - self._holding(missing))
        if target.uid == at.main.uid:
            found = target.query(query, k, ids=among, where=kept)
        else:
            found = self._beside(target, query, k, kept, among)
        values: dict[str, dict[str, Any]] = {}
        if columns:
            rows = self._batch(at.main, [key for key, _ in found], columns)
            values = {row[self.id]: row for row in rows.to_pylist()}
            found = [(key, distance) for key, distance in found if key in values]
        return [
            Hit(
                key,
                score(self.distance, distance),
                {name: values[key][name] for name in columns},
            )
            for key, distance in found
        ]

    def _beside(
        self,
        target: Collection,
        query: NDArray[np.float32],
        k: int,
        kept: Any,
        among: list[str] | None,
    ) -> list[tuple[str, float]]:
        """The nearest rows of the collection that does not say which rows there are: first some
        more than wanted, of which those are kept that are there and match; if that is too few,
        among those that match."""
        rows, main = k if kept is None else _DEEPER * k, self._at.main
        while among is None and rows <= max(_DEEPEST, _DEEPER * k):
            found = target.query(query, rows)
            there = main.present([key for key, _ in found], kept)
            good = [(key, distance) for key, distance in found if key in there]
            if len(good) >= k or len(found) < rows:
                return good[:k]
            rows *= _DEEPER
        ids = set(main.ids(kept)) & set(target.ids())
        return target.query(query, k, ids=sorted(ids if among is None else ids & set(among)))

    def build_index(self, column: str) -> None:
        """Nothing to ask for: Chroma indexes vectors as they come."""

    def version(self) -> str | None:
        """Chroma has no version of a collection: one must look."""
        return None

    def activity(self) -> str | None:
        return self._again(lambda: str(self._at.main.count()))

    def duplicates(self) -> list[Id]:
        """Ids of a collection are unique."""
        return []

    def obstacles(self) -> list[Obstacle]:
        return []

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        """Let the collection beside take the application's name (see `promote`)."""
        told, added = Intention.read(self._state), self._state.columns()
        if told is None and column not in added:
            return self.vector
        at = self._at = self._resolve()
        shared = self._shared()
        exchange = Exchange(self._database, self._state, at.old, shared)
        # The columns are forgotten last but one, when no vector is made any more.
        dim = added[column].dim if column in added else 0
        stage = DRESSING if told is None else told.stage
        if stage == RETURNING:
            exchange.swap_back()
            stage = DRESSING
        if stage == DRESSING:
            exchange.reach(DRESSING)
            self._settle(columns, work)
            exchange.dress(dim)
            stage = SWAPPING
        if stage == SWAPPING:
            exchange.swap()
            stage = SWAPPED
        # Killed before the old collection went, others have written to it since.
        if stage in (SWAPPED, DROPPING) and at.old.uid != shared.uid:
            self._at = self._resolve()
            exchange.catch_up(dim, lambda ids: self._carry(at.old, ids, columns, work))
        if stage != STRIPPING:
            exchange.drop()
        self._at = self._resolve()
        exchange.strip()
        self._state.remember({n: c for n, c in added.items() if n not in (column, *drop)})
        exchange.end()
        self._at = self._resolve()
        return self.vector

    def withdraw(self, column: str) -> None:
        told = Intention.read(self._state)
        if told is None:
            return
        at = self._at = self._resolve()
        if at.old.uid != told.old:
            raise StoreError("the old vectors are gone", where=self.name)
        exchange = Exchange(self._database, self._state, at.old, self._shared())
        if told.stage != DRESSING:
            exchange.swap_back()
        exchange.end()
        self._at = self._resolve()

    def own_vectors(self, column: str) -> OwnVectors:
        """By who has the name; for a moment it may be nobody, or a collection that an application
        has made because there was none."""
        told = Intention.read(self._state)
        if told is None:
            return "old" if column in self._state.columns() else "new"
        holder = self._database.find(self._collection)
        uid = None if holder is None else holder.uid
        return "new" if uid == told.new else "old" if uid == told.old else "neither"

    def _settle(self, columns: Sequence[str], work: Work) -> None:
        """Show every row to `work` until it has nothing to do."""
        for _ in range(_PASSES):
            idle = True
            for rows in self.stream(columns):
                made = work(rows)
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

    def _carry(
        self, old: Collection, ids: Sequence[str], columns: Sequence[str], work: Work
    ) -> None:
        """Show rows of the old collection to `work`, and write what it makes of them."""
        rows = self._batch(old, ids, columns)
        made = work(rows) if len(rows) else None
        if made is not None:
            self._write(old, made)

    def get(self, key: str) -> str | None:
        return self._state.get(named(key))

    def put(self, key: str, value: str | None) -> None:
        self._state.put(named(key), value)

    def lock(self) -> AbstractContextManager[None]:
        if self._database.folder is None:
            return self._state.lease()
        refuse_held(self._database.folder)
        return folder_lock(self._database.folder / f".{self._collection}.crossfade.lock", self.name)

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        vector, fields = columns[0], ", ".join(c.name for c in columns[1:])
        own, shared = self._collection, beside("shared", self._collection)
        aside = beside("old", self._collection)
        write = [f"upsert {shared}  -- {vector.name} as embedding; metadata {fields}"]
        return {
            "start": [
                f"create_collection {shared}  -- for {vector.name}, {vector.dim} dimensions, "
                f"settings as {own}"
            ],
            "forward": write,
            "backfill": write,
            "finish": [
                f"update {shared}  -- documents, uris and metadata from {own}",
                f"modify {own}  -- name {aside}",
                f"modify {shared}  -- name {own}",
                f"delete_collection {aside}",
                f"update {own}  -- metadata without {fields}",
            ],
            "rollback": [f"delete_collection {shared}"],
        }

    def close(self) -> None:
        self._database.close()

    def _resolve(self) -> _Collections:
        """Look who is who; by Chroma's ids while names are exchanged."""
        told = Intention.read(self._state)
        if told is not None:
            new = self._database.by_id(told.new)
            old = None if told.stage == STRIPPING else self._database.by_id(told.old)
            if new is None:
                raise StoreError(
                    "the collection of shared vectors is gone",
                    where=self.name,
                    step="restore a backup",
                )
            old = old or new
            return _Collections(new if told.stage in NEW else old, old, new)
        main = self._database.find(self._collection)
        if main is None:
            names = ", ".join(self._database.names()) or "none"
            raise BadInput(
                "there is no such collection", where=self.name, step=f"there are: {names}"
            )
        added = any(column.kind == "vector" for column in self._state.columns().values())
        shared = self._database.find(beside("shared", self._collection)) if added else None
        return _Collections(main, main, shared)

    def _mend(self) -> None:
        """End an exchange of names that was cut short between the two: the application finds no
        collection until then. If another process is at it, it is that one's to end."""
        if self._cut_short() is None:
            return
        with suppress(StoreBusy), self.lock():
            # What was so before the lock was taken may have been the other's doing.
            told = self._cut_short()
            old = None if told is None else self._database.by_id(told.old)
            new = None if told is None else self._database.by_id(told.new)
            if told is not None and old is not None and new is not None:
                exchange = Exchange(self._database, self._state, old, new)
                (exchange.swap if told.stage == SWAPPING else exchange.swap_back)()

    def _cut_short(self) -> Intention | None:
        """An exchange that is announced, and has left nobody with the name."""
        told = Intention.read(self._state)
        if told is None or told.stage not in (SWAPPING, RETURNING):
            return None
        return told if self._database.find(self._collection) is None else None

    def _again(self, ask: Callable[[], T]) -> T:
        """Ask; if that fails and the collections have changed places since, ask again."""
        try:
            return ask()
        except (StoreError, BadInput):
            before, self._at = self._at, self._resolve()
            if _who(before) == _who(self._at):
                raise
            return ask()

    def _shared(self, column: str | None = None) -> Collection:
        added = self._state.columns() if column is not None else {}
        if self._at.shared is None or (
            column is not None and (column not in added or added[column].kind != "vector")
        ):
            raise BadInput(f"has no vector {column or 'added'!r}", where=self.name)
        return self._at.shared

    def _at_main_ids(self) -> set[str]:
        return set(self._at.main.ids())

    def _holding(self, column: str) -> set[str]:
        """The ids of rows that have something in an added column."""
        added = self._state.columns()
        if column not in added:
            raise BadInput(f"has no column {column!r}", where=self.name)
        shared = self._shared()
        if added[column].kind == "vector":
            return set(shared.ids())
        if added[column].kind == "integer":
            return set(shared.ids({column: {"$gte": -(2**63)}}))
        return {key for value, ids in self._by_value(column).items() if value for key in ids}

    def _by_value(self, column: str) -> dict[str | None, set[str]]:
        """Ids by what they have in an added text column, of which there are a few: Chroma counts
        nothing by itself, but tells the rows that have a value, or none of several."""
        shared = self._shared()
        out: dict[str | None, set[str]] = {}
        rest: Any = None
        while some := shared.ids(rest, limit=1):
            told = shared.get(some, vectors=False)
            if not len(told):
                continue
            value = told.metadatas[0].get(column)
            if value is None:
                return self._by_value_of_all(column)
            out[value] = set(shared.ids({column: value}))
            rest = {column: {"$nin": list(out)}}
        return out

    def _by_value_of_all(self, column: str) -> dict[str | None, set[str]]:
        out: dict[str | None, set[str]] = {}
        shared = self._shared()
        ids = shared.ids()
        for first in range(0, len(ids), ROWS):
            page = shared.get(ids[first : first + ROWS], vectors=False)
            for key, told in zip(page.ids, page.metadatas, strict=True):
                out.setdefault(told.get(column), set()).add(key)
        out.pop(None, None)
        return out

    def _condition(self, where: Where | None) -> Any:
        """A filter as Chroma's; a field must be one that some row has."""
        names = tuple(where or {})
        if any(name in OWN for name in names):
            raise BadInput(
                f"{next(name for name in names if name in OWN)!r} is no metadata",
                where=self.name,
                step="filter by metadata",
            )
        kept = condition(check_where(where, names))
        strange = [name for name in names if name not in self._fields]
        if not strange or kept is False or self._at.main.ids(kept, limit=1):
            return kept
        self._again(self._describe)
        if not set(strange) <= self._fields:
            self._look_for(set(strange))
        check_where(where, tuple(sorted(self._fields)))
        return kept

    def _look_for(self, fields: set[str]) -> None:
        """Look through all rows for fields, which the first rows have not."""
        ids = self._at.main.ids()
        for first in range(0, len(ids), ROWS):
            page = self._at.main.get(ids[first : first + ROWS], vectors=False)
            self._fields |= {name for n in range(len(page)) for name in page.own(n)}
            if fields <= self._fields:
                return

    def _batch(
        self, main: Collection, ids: Sequence[str], columns: Sequence[str]
    ) -> pa.RecordBatch:
        """Rows as the contract wants them: (id, *columns, TOKEN)."""
        added = self._state.columns() if any(name.startswith(PREFIX) for name in columns) else {}
        rows = main.get(ids)
        at = self._at
        shared = old = None
        if any(name in added for name in columns):
            vectors = any(added[name].kind == "vector" for name in columns if name in added)
            shared = self._shared().get(rows.ids, vectors=vectors)
        if self.vector in columns and at.old.uid != main.uid:
            old = at.old.get(rows.ids)
        out: dict[str, Any] = {self.id: pa.array(rows.ids, pa.string())}
        for name in columns:
            if name in added and shared is not None:
                out[name] = _spread(shared, rows.ids, added[name])
            elif name == self.vector and old is not None:
                whole = Column(name, "vector", at.old.dim())
                out[name] = _spread(old, rows.ids, whole)
            elif name.startswith(PREFIX):
                raise BadInput(f"has no column {name!r}", where=self.name)
            else:
                empty = name == self.vector and not len(rows)
                kind = Column(name, "vector", max(1, main.dim())).arrow if empty else None
                out[name] = rows.column(name, kind, self.name)
        out[TOKEN] = pa.array(rows.tokens())
        return pa.RecordBatch.from_pydict(out)


def _who(at: _Collections) -> tuple[str | None, ...]:
    shared = None if at.shared is None else at.shared.uid
    return (at.main.uid, at.old.uid, shared)


def _spread(rows: Records, ids: Sequence[str], column: Column) -> pa.Array:
    """A column of rows of another collection, null where an id is not there."""
    row_of = {key: at for at, key in enumerate(rows.ids)}
    at = [row_of.get(key) for key in ids]
    if column.kind == "vector":
        return pa.array([None if n is None else rows.vectors[n] for n in at], column.arrow)
    told = [None if n is None else rows.metadatas[n].get(column.name) for n in at]
    return pa.array(told, column.arrow)
