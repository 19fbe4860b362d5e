"""Milvus: a collection on a server (2.3 or newer), or in a file of milvus-lite.

Milvus can add no vector to a collection, so what a migration adds lives in a collection beside it,
`crossfade_shadow_NAME`, by the same ids; nothing is written to the application's own. `promote`
makes a third one, with the application's fields and the shared vectors, which takes the place of
the first (see `promote`).

Milvus has no version of a row: the token is a hash of all that the application has in it, which
`write` compares just before it writes. A change in the instant between is not noticed by the write,
but by the next look: the shadow is about a row that was another one. There are no transactions: a
batch goes in pieces, each of which is seen as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
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
from crossfade.stores.milvus.client import Database, connect
from crossfade.stores.milvus.collection import MOST, SESSION, STRONG, Collection
from crossfade.stores.milvus.promote import Promotion
from crossfade.stores.milvus.rows import (
    Row,
    added_of,
    added_value,
    both,
    column_of,
    condition,
    hashes,
    is_ours,
    mark_of,
    one_of,
)
from crossfade.stores.milvus.schema import (
    NEW,
    OLD,
    SHADOW,
    WRITTEN,
    Shape,
    check_collection,
    drop,
    indexes,
    is_loaded,
    make_shadow,
    metric_of,
    the_distance,
    the_vector,
)
from crossfade.stores.milvus.state import home_of, named, state_of
from crossfade.stores.names import check_name
from crossfade.stores.rows import ids_alone, matrix
from crossfade.threads import all_at_once

_SAMPLE = 100
# Ids that are there twice.
_TOLD = 10
# So many ids of rows that pass a filter, or miss a column, are searched by name.
_BY_NAME = 10_000
_WIDER = 8


@dataclass(frozen=True)
class View:
    """Which collection holds what at the moment, told by those that there are.

    `base` has the application's rows, `old` the old vectors, `marks` what was added. Before the
    columns change places base and old are one; afterwards base has the shared vectors.
    """

    database: Database
    base_name: str
    old_name: str
    marks_name: str | None
    _known: dict[str, Collection] = field(default_factory=dict, repr=False)

    @property
    def switched(self) -> bool:
        """Whether the application has the new collection already, and the old one is still here."""
        return self.base_name != self.old_name

    @property
    def base(self) -> Collection:
        return self._collection(self.base_name)

    @property
    def old(self) -> Collection:
        return self._collection(self.old_name)

    @property
    def marks(self) -> Collection | None:
        return None if self.marks_name is None else self._collection(self.marks_name)

    def _collection(self, name: str) -> Collection:
        """Asked for once a view; nobody waits for another who asks."""
        if name not in self._known:
            self._known[name] = Collection(self.database, name)
        return self._known[name]

    @property
    def added(self) -> dict[str, Column]:
        return {} if self.marks is None else self.marks.shape.added


class MilvusStore:
    """A collection of a Milvus."""

    kind = "milvus"

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self.asked = check_collection(collection)
        self._database = connect(url)
        self.name = f"{self._database.name}#{collection}"
        try:
            self.home = home_of(self._database, collection)
            self._state = state_of(self._database, self.home)
            view = self.view()
            self._load(view)
            shape = view.base.shape
            if id not in (None, shape.id):
                raise BadInput(
                    f"{id!r} cannot be the id",
                    where=self.name,
                    step=f"its primary key is {shape.id!r}",
                )
            self.id = shape.id
            self.vector = the_vector(shape, vector, self.name)
            found = indexes(self._database, view.base_name)
            self.distance: Distance = the_distance(found, self.vector, distance, self.name)
            self.index = found.get(self.vector) or {
                "index_type": "FLAT",
                "metric_type": metric_of(self.distance),
                "params": {},
            }
        except BaseException:
            self._database.close()
            raise

    def describe(self) -> Description:
        view = self.view()
        shape = view.base.shape
        dynamic = self._sampled(view) if shape.dynamic else []
        own = [name for name in shape.fields if name not in (self.id, self.vector)]
        return Description(
            kind=self.kind,
            name=self.name,
            rows=view.base.count(),
            id=self.id,
            id_type=shape.id_type,
            vector=self.vector,
            dim=view.old.shape.fields[self.vector].dim,
            distance=self.distance,
            columns=(self.id, self.vector, *own, *dynamic),
            added=tuple(view.added),
            indexed=tuple(indexes(self._database, view.base_name)),
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if missing is not None:
            ids = self._missing(self.view(), missing, after)
            while some := list(islice(ids, size)):
                found = self.read(some, columns)
                if len(found):
                    yield found
            return
        key = after
        while not columns:
            base = self.view().base
            page = next(base.pages([self.id], after=key, size=size), [])
            if not page:
                return
            yield ids_alone(self.id, self._ids(base.shape, page))
            key = page[-1][self.id]
        while True:
            view = self.view()
            rows: list[Row] = []
            while len(rows) < size:
                left = size - len(rows)
                page = next(view.base.pages(view.base.all_fields, after=key, size=left), [])
                if not page:
                    break
                rows += page
                key = page[-1][self.id]
            if not rows:
                return
            yield self._batch(view, rows, columns)

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        # Searches wait for it. Who writes what he has made of it is compared with what is there.
        return self._read(ids, columns, SESSION)

    def _read(self, ids: Sequence[Id], columns: Sequence[str], level: str) -> pa.RecordBatch:
        view = self.view()
        found = view.base.given(ids, view.base.all_fields, level=level)
        rows = [found[key] for key in ids if key in found]
        return self._batch(view, rows, columns, level=level)

    def add_columns(self, columns: Sequence[Column]) -> None:
        if not columns:
            return
        for column in columns:
            check_name(column.name)
        make_shadow(self._database, self.view().old.shape, columns, self.index, self.home)

    def drop_columns(self, names: Sequence[str]) -> None:
        added = self.view().added
        if not set(added) <= set(names) and set(added) & set(names):
            raise StoreError(
                "Milvus drops no single fields", where=self.name, step="drop all added columns"
            )
        if set(added) <= set(names):
            drop(self._database, SHADOW + self.home)

    def write(self, rows: pa.RecordBatch) -> int:
        view = self.view()
        dims = sum(field.dim for name, field in view.old.shape.fields.items())
        dims += sum(column.dim for column in view.added.values())
        size = max(1, min(MOST, _BYTES // (4 * dims)))
        return sum(
            self.write_marks(view, rows.slice(first, size)) for first in range(0, len(rows), size)
        )

    def write_marks(self, view: View, rows: pa.RecordBatch) -> int:
        """Write added columns, of rows that are as they were when they were read."""
        marks, added = view.marks, view.added
        if marks is None:
            raise StoreError("has no added columns", where=self.name, step="start a migration")
        ids = rows[self.id].to_pylist()
        given = rows[TOKEN].to_pylist() if TOKEN in rows.schema.names else None
        # Each waits until all that was written before is seen, and none need for another.
        looks = view.old.looks(ids, view.old.all_fields, level=STRONG)
        found = all_at_once([*looks, *marks.looks(ids, [self.id], level=STRONG)])
        now, known = view.old.merged(found[: len(looks)]), marks.merged(found[len(looks) :])
        there = [(at, key) for at, key in enumerate(ids) if key in now]
        seen = hashes([now[key] for _, key in there], view.old.shape, self.vector)
        values = {
            name: matrix(rows[name]) if column.kind == "vector" else rows[name].to_pylist()
            for name, column in added.items()
        }
        empty = np.zeros(len(rows), bool)
        for name, column in added.items():
            if column.kind == "vector":
                empty |= ~rows[name].is_valid().to_numpy(zero_copy_only=False)
        told, taken = [], []
        for (at, key), of_vector, of_fields in zip(
            there, *map(np.ndarray.tolist, seen), strict=True
        ):
            if given is not None and given[at] != _token(of_vector, of_fields):
                continue
            if empty[at]:
                taken.append(key)
                continue
            own = {name: found[at] for name, found in values.items()}
            told.append(mark_of((self.id, key), own, added, (of_vector, of_fields)))
        marks.delete(taken)
        marks.put([mark for mark in told if mark[self.id] not in known], fresh=True)
        marks.put([mark for mark in told if mark[self.id] in known])
        return len(told) + len(taken)

    def erase(self, rows: pa.RecordBatch) -> int:
        view = self.view()
        given = dict(zip(rows[self.id].to_pylist(), rows[TOKEN].to_pylist(), strict=True))
        now = self._read(list(given), [], STRONG)
        told = zip(now[self.id].to_pylist(), now[TOKEN].to_pylist(), strict=True)
        same = [key for key, token in told if given[key] == token]
        if view.marks is not None:
            view.marks.delete(same)
        return len(same)

    def tally(self, column: str) -> dict[str | None, int]:
        view = self.view()
        self._need(view, column)
        counts: dict[str | None, int] = {}
        for _, mark in self._beside(view, [column], None):
            value = added_value(mark, view.added[column])
            counts[value] = counts.get(value, 0) + 1
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
        view = self.view()
        told = self._condition(view, where)
        if told is None or k < 1:
            return []
        if column != self.vector:
            self._need(view, column)
            if not view.switched:
                return self._search_shadow(view, query, column, k, told, columns)
        source = view.old
        if view.switched and (column != self.vector or not self._is_old(view, query)):
            source = view.base
        if missing is not None:
            return self._search_missing(view, query, k, told, missing, columns)
        found = source.search(query, self.vector, k, [], told)
        return self._hits(view, [(key, score) for key, score, _ in found], columns)

    def build_index(self, column: str) -> None:
        """A shadow is indexed from the beginning; what has come is sealed, so that it is entered
        into the index now and not when the server comes to it."""
        marks = self.view().marks
        if marks is not None and column in marks.shape.fields:
            self._database.call("flush", marks.name)

    def version(self) -> str | None:
        """Milvus has no version of a collection: one must look."""
        return None

    def activity(self) -> str | None:
        """The number of rows: it tells that some came, and that is what is asked for."""
        return str(self.view().base.count(level="Eventually"))

    def duplicates(self) -> list[Id]:
        """Milvus takes an id twice if it is inserted twice, and shows either row; milvus-lite
        keeps the last."""
        if self._database.file is not None:
            return []
        base, out = self.view().base, []
        for page in base.pages([self.id]):
            out += base.counted_twice([row[self.id] for row in page], _TOLD)
            if len(out) >= _TOLD:
                break
        return out[:_TOLD]

    def obstacles(self) -> list[Obstacle]:
        shape = self.view().base.shape
        if not shape.auto_id:
            return []
        return [
            Obstacle(
                "its ids are made by Milvus (auto_id), and rows could not keep theirs in the "
                "collection that takes its place"
            )
        ]

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        return Promotion(self, self._database, self._state, column).run(columns, work)

    def withdraw(self, column: str) -> None:
        Promotion(self, self._database, self._state, column).undo()

    def own_vectors(self, column: str) -> OwnVectors:
        """By what the name stands for; between two renames it is nothing."""
        names = set(self._database.call("list_collections"))
        new, old, shadow = (prefix + self.home for prefix in (NEW, OLD, SHADOW))
        if self.asked != self.home:
            moved = self._database.alias_target(self.asked) == new
        elif self.home not in names:
            return "neither"
        else:
            moved = old in names
        # The shadow goes when all was brought over, before anything else does.
        return "new" if moved or shadow not in names else "old"

    def get(self, key: str) -> str | None:
        return self._state.get(named(key))

    def put(self, key: str, value: str | None) -> None:
        self._state.put(named(key), value)

    def lock(self) -> AbstractContextManager[None]:
        return self._state.lock()

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        shadow, new, old = (prefix + self.home for prefix in (SHADOW, NEW, OLD))
        fields = ", ".join(c.name for c in columns)
        kind = self.index["index_type"]
        write = [f"query {self.home}", f"insert or upsert {shadow}  -- {fields}"]
        if self.asked == self.home:
            switch = [f"rename {self.home} to {old}", f"rename {new} to {self.home}"]
            ending = [f"drop {shadow}", f"drop {old}"]
        else:
            switch = [f"alter alias {self.asked} to {new}"]
            ending = [f"drop {shadow}", f"drop {self.home}", f"rename {new} to {self.home}"]
        return {
            "start": [f"create {shadow}  -- {fields}", f"index {shadow}  -- {kind}"],
            "forward": write,
            "backfill": write,
            "finish": [
                f"create {new}  -- as {self.home}, {self.vector} of {columns[0].dim} dimensions",
                f"upsert {new}  -- rows of {self.home}, {self.vector} from {shadow}",
                *switch,
                f"upsert {self.home}  -- what was written meanwhile",
                *ending,
            ],
            "rollback": [f"drop {shadow}"],
        }

    def close(self) -> None:
        self._database.close()

    def batch_of(
        self, collection: Collection, rows: Sequence[Row], marks: Sequence[Row | None],
        columns: Sequence[str], added: dict[str, Column],
    ) -> pa.RecordBatch:  # fmt: skip
        """Rows of a collection as the contract wants them, with what was added to them."""
        out: dict[str, Any] = {self.id: self._ids(collection.shape, rows)}
        for name in columns:
            if name in added:
                out[name] = added_of(marks, added[name])
            elif name != self.id:
                out[name] = self._column(collection, rows, name)
        out[TOKEN] = self._tokens(collection, rows)
        return pa.RecordBatch.from_pydict(out)

    def view(self) -> View:
        """Which collection holds what, told by those there are: so whoever looks sees every moment
        of a switch in the same way, also who opened the store before it."""
        database, home = self._database, self.home
        names = set(database.call("list_collections"))
        new, old, shadow = NEW + home, OLD + home, SHADOW + home
        marks = shadow if shadow in names else None
        if self.asked != home:
            if database.alias_target(self.asked) == new:
                # Without the shadow all was brought over, and the old collection is on its way out.
                past = home if home in names and marks else new
                return View(database, new, past, marks)
        elif old in names:
            if home not in names:
                return View(database, old, old, marks)
            return View(database, home, old if marks else home, marks)
        if home not in names:
            there = ", ".join(sorted(n for n in names if not is_ours(n))) or "none"
            raise BadInput(
                "there is no such collection",
                where=self.name,
                step=f"the collections there are: {there}",
            )
        return View(database, home, home, marks)

    def _load(self, view: View) -> None:
        """A collection of a file is loaded by each process; a server's by whoever has it."""
        if is_loaded(self._database, view.base_name):
            return
        if self._database.file is None:
            raise BadInput(
                "is not loaded, and can be neither read nor searched",
                where=self.name,
                step=f"load it first: MilvusClient.load_collection({view.base_name!r})",
            )
        self._database.call("load_collection", view.base_name)

    def _batch(
        self, view: View, rows: Sequence[Row], columns: Sequence[str], level: str | None = None
    ) -> pa.RecordBatch:
        """Rows of the application's as the contract wants them: all from the first to the last, or
        some, by a level of consistency."""
        added = view.added
        wanted = [name for name in columns if is_ours(name)]
        self._need(view, *wanted)
        marks: list[Row | None] = [None] * len(rows)
        ids = [row[self.id] for row in rows]
        if wanted and rows and view.marks is not None:
            fields = [self.id, WRITTEN, *wanted]
            if level is None:
                found = view.marks.between(ids[0], ids[-1], fields)
            else:
                found = view.marks.given(ids, fields, level=level)
            marks = [found.get(key) for key in ids]
        out = self.batch_of(view.base, rows, marks, columns, added)
        if not view.switched:
            return out
        return self._after_switch(view, out, rows, ids)

    def _after_switch(
        self, view: View, out: pa.RecordBatch, rows: Sequence[Row], ids: Sequence[Id]
    ) -> pa.RecordBatch:
        """The same where the new collection is the application's: the shared vectors are those that
        it has there, and the old ones are in the one that was."""
        for at, name in enumerate(out.schema.names):
            if name == self.vector:
                past = view.old.given(ids, [self.id, self.vector], level=SESSION)
                values = self._column(view.old, [past.get(key, {}) for key in ids], name)
            elif name in view.added and view.added[name].kind == "vector":
                values = self._column(view.base, rows, self.vector)
            else:
                continue
            out = out.set_column(at, name, values)
        return out

    def _ids(self, shape: Shape, rows: Sequence[Row]) -> pa.Array:
        kind = pa.string() if shape.id_type == "text" else pa.int64()
        return pa.array([row[self.id] for row in rows], kind)

    def _column(self, collection: Collection, rows: Sequence[Row], name: str) -> pa.Array:
        field = collection.shape.fields.get(name)
        if field is None and not collection.shape.dynamic:
            raise BadInput(f"has no column {name!r}", where=self.name)
        return column_of(rows, name, field, self.name)

    def _tokens(self, collection: Collection, rows: Sequence[Row]) -> pa.Array:
        found = hashes(rows, collection.shape, self.vector)
        told = zip(*map(np.ndarray.tolist, found), strict=True)
        return pa.array([_token(*both) for both in told], pa.int64())

    def _need(self, view: View, *columns: str) -> Collection:
        """The collection of what was added, these columns among it."""
        for column in columns:
            if view.marks is None or column not in view.added:
                raise BadInput(
                    f"has no column {column!r}", where=self.name, step="start a migration to add it"
                )
        return cast(Collection, view.marks)

    def _beside(
        self, view: View, columns: Sequence[str], after: Id | None
    ) -> Iterator[tuple[Id, Row | None]]:
        """The ids of all rows in order, each with what was added to it."""
        pages, fields = view.base.pages([self.id], after=after), [self.id, WRITTEN, *columns]
        wanted = 1
        while some := list(islice(pages, wanted)):
            found: list[dict[Id, Row]] = [{} for _ in some]
            if (marks := view.marks) is not None:
                # Each waits until all that was written before is seen: for the same moment.
                ends = [(page[0][self.id], page[-1][self.id]) for page in some]
                found = all_at_once([partial(marks.between, *two, fields) for two in ends])
            for page, beside in zip(some, found, strict=True):
                for row in page:
                    yield row[self.id], beside.get(row[self.id])
            # Who looks for a few rows has found them on the first page, most often.
            wanted = _PAGES

    def _missing(self, view: View, column: str, after: Id | None) -> Iterator[Id]:
        """Ids of rows that have nothing in an added column."""
        self._need(view, column)
        for key, mark in self._beside(view, [column], after):
            if added_value(mark, view.added[column]) is None:
                yield key

    def _condition(self, view: View, where: Where | None) -> str | None:
        shape = view.base.shape
        others = [check_name(name, "field") for name in where or {} if name not in shape.fields]
        dynamic: list[str] = []
        if others and shape.dynamic:
            # Any name may be one there, and whether a row has it is what has to be known.
            dynamic = [name for name in others if view.base.ids(f"exists {name}", 1, None)]
        return condition(where, shape, dynamic)

    def _search_shadow(
        self,
        view: View,
        query: NDArray[np.float32],
        column: str,
        k: int,
        told: str,
        columns: Sequence[str],
    ) -> list[Hit]:
        """The nearest of the shared vectors, of rows that the application still has.

        It filters by its own fields. Where few rows pass they are searched by name, which is exact;
        where many do, enough of the nearest are looked at.
        """
        marks, among = self._need(view, column), ""
        if told:
            some = view.base.ids(told, _BY_NAME + 1, None)
            if len(some) <= _BY_NAME:
                among = one_of(self.id, some)
                told = ""
        window = k
        while True:
            found = marks.search(query, column, window, [WRITTEN], among)
            nearest = [(key, score) for key, score, mark in found if mark[WRITTEN]]
            hits = self._hits(view, nearest, columns, told)
            if len(hits) >= k or len(found) < window or window >= MOST:
                return hits[:k]
            window = min(MOST, window * _WIDER)

    def _search_missing(
        self,
        view: View,
        query: NDArray[np.float32],
        k: int,
        told: str,
        missing: str,
        columns: Sequence[str],
    ) -> list[Hit]:
        """The nearest rows that miss a column: a few by name; of many enough are near."""
        few = list(islice(self._missing(view, missing, None), _BY_NAME + 1))
        if len(few) <= _BY_NAME:
            found = view.old.search(query, self.vector, k, [], both(told, one_of(self.id, few)))
            return self._hits(view, [(key, score) for key, score, _ in found], columns)
        shadow, window = self._need(view, missing), k
        while True:
            found = view.old.search(query, self.vector, window, [], told)
            ids = [key for key, _, _ in found]
            marks = shadow.given(ids, [self.id, WRITTEN, missing], level=None)
            lacking = [
                (key, score)
                for key, score, _ in found
                if added_value(marks.get(key), view.added[missing]) is None
            ]
            if len(lacking) >= k or len(found) < window or window >= MOST:
                return self._hits(view, lacking[:k], columns)
            window = min(MOST, window * _WIDER)

    def _hits(
        self, view: View, found: Sequence[tuple[Id, float]], columns: Sequence[str], told: str = ""
    ) -> list[Hit]:
        """Hits with what they bring along, of rows that are there and meet an expression."""
        ids = [key for key, _ in found]
        own = [name for name in columns if not is_ours(name)]
        fields = list(dict.fromkeys([self.id, *own]))
        rows = view.base.given(ids, fields, where=told, level=None)
        there = [(key, score) for key, score in found if key in rows]
        marks: dict[Id, Row] = {}
        added = [name for name in columns if is_ours(name)]
        if added:
            beside = self._need(view, *added)
            marks = beside.given([key for key, _ in there], [self.id, WRITTEN, *added], level=None)
        out = []
        for key, score in there:
            values = {
                name: _listed(added_value(marks.get(key), view.added[name]))
                if name in view.added
                else _listed(rows[key].get(name))
                for name in columns
            }
            out.append(Hit(key, -score if self.distance == "l2" else score, values))
        return out

    def _is_old(self, view: View, query: NDArray[np.float32]) -> bool:
        """Whether a query of the vector that changes places is one of the old vectors."""
        return len(query) == view.old.shape.fields[self.vector].dim

    def _sampled(self, view: View) -> list[str]:
        """Names of dynamic fields, as far as some rows have them."""
        page = next(view.base.pages(["*"], size=_SAMPLE), [])
        names = dict.fromkeys(name for row in page for name in row)
        return [name for name in names if name not in view.base.shape.fields]


# Of vectors, of rows that are looked at together before they are written.
_BYTES = 64 << 20
# Of the ids of all rows, with what is beside them.
_PAGES = 4


def _token(of_vector: int, of_fields: int) -> int:
    return of_vector ^ of_fields


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
