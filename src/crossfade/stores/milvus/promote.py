"""Putting a collection with the shared vectors in the place of the one with the old.

A new collection gets the application's fields and the shared vectors. Then it takes the name: where
the address is an alias, by one call that moves the alias; else by two renames, between which there
is no collection of that name for some milliseconds. What the application has written to the old
collection until then is brought over afterwards: nobody writes there any more, so a last look finds
all of it. Only then is the old collection dropped.

Every stage is written down before it is begun, and each of its acts can be done again:

    copying    the old collection is the application's; the new one is being filled
    switching  the new one is whole, and is taking the name or has it; both are there
    dropping   all was brought over; the old one goes, or is gone

A row of the shadow keeps hashes of the row that it was made of. A row of the old collection that
has others has changed since it was brought over. A row of the new collection that is not what was
put there has been written by the application since, and is left alone. New rows are put before
their shadow is written: killed in between, they count as the application's, and are right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput, StoreError
from crossfade.stores.contract import Column, Id, Work
from crossfade.stores.milvus.client import Database
from crossfade.stores.milvus.collection import STRONG, Collection
from crossfade.stores.milvus.rows import Row, added_value, hashes, mark_of, seen_in
from crossfade.stores.milvus.schema import NEW, OLD, SHADOW, drop, is_loaded, make_again
from crossfade.stores.milvus.state import State
from crossfade.stores.rows import matrix

if TYPE_CHECKING:
    from crossfade.stores.milvus.store import MilvusStore

STATE = "promotion"
# What was on its way to the old collection when the name passed to the new one has arrived by then.
_IN_FLIGHT = 0.5
# Looks before the switch: what comes after them is found by the last.
_LOOKS = 3
_PAGE = 2_000
# Of a vector that a server has kept in an index.
_CLOSE = 1e-5


@dataclass(frozen=True)
class _Known:
    """A row of one of the collections, and the hashes of what the application has in it."""

    row: Row
    hashed: tuple[int, int]


@dataclass(frozen=True)
class _Seen:
    """A row of the old collection, what was added to it, and what stands for it in the new one."""

    key: Id
    old: _Known
    mark: Row | None
    new: _Known | None


@dataclass(frozen=True)
class _Due:
    """What the shadow and the new collection must hold of a row."""

    seen: _Seen
    mark: Row
    fresh: bool
    """Whether the shadow is another one than before."""


class Promotion:
    """One promotion of the vector `column`, as far as it has come."""

    def __init__(self, store: MilvusStore, database: Database, state: State, column: str) -> None:
        self._store, self._database, self._state, self._column = store, database, state, column
        self._home, self._by_alias = store.home, store.asked != store.home
        self._new, self._old, self._shadow = (prefix + self._home for prefix in (NEW, OLD, SHADOW))

    def run(self, columns: Sequence[str], work: Work) -> str:
        """Bring it to its end, from wherever it was cut off."""
        stage, aliases = self._stage()
        if stage is None and not self._has(self._shadow):
            return self._store.vector
        if stage in (None, "copying"):
            aliases = list(self._database.call("list_aliases", self._home)["aliases"])
            self._put("copying", aliases)
            self._copy(columns, work)
            self._put("switching", aliases)
        if stage != "dropping":
            self._switch(aliases)
            time.sleep(_IN_FLIGHT)
            self._bring_over(columns, work)
            self._put("dropping", aliases)
        self._drop()
        self._state.put(STATE, None)
        return self._store.vector

    def undo(self) -> None:
        """Give the name back to the old collection, and do there what the application has done to
        the new one meanwhile: rows that came, went, changed or lost their vector."""
        stage, aliases = self._stage()
        if stage is None and self._has(self._shadow):
            return
        if stage in (None, "dropping"):
            raise StoreError("the old vectors are gone", where=self._store.name)
        self._switch_back(aliases)
        if stage == "switching" and self._has(self._new):
            time.sleep(_IN_FLIGHT)
            self._take_back()
        drop(self._database, self._new)
        self._state.put(STATE, None)

    def _stage(self) -> tuple[str | None, list[str]]:
        told = json.loads(self._state.get(STATE) or "{}")
        return told.get("stage"), list(told.get("aliases", []))

    def _put(self, stage: str, aliases: list[str]) -> None:
        self._state.put(STATE, json.dumps({"stage": stage, "aliases": aliases}))

    def _has(self, name: str) -> bool:
        return name in self._database.call("list_collections")

    def _copy(self, columns: Sequence[str], work: Work) -> None:
        """Fill the new collection, and look again at what has changed meanwhile."""
        store, view = self._store, self._store.view()
        if view.marks is None:
            raise BadInput(f"has no column {self._column!r}", where=store.name)
        base, marks = view.base, view.marks
        dim = view.added[self._column].dim
        make_again(self._database, base.shape, self._new, store.vector, dim, store.index)
        new = Collection(self._database, self._new)
        for _ in range(_LOOKS):
            changed = 0
            for partition in self._partitions(base):
                for page in self._pages(base, marks, new, partition):
                    changed += self._settle(base, marks, new, page, columns, work, partition)
            changed += self._forget(base, marks, new)
            if not changed:
                return

    def _settle(
        self,
        base: Collection,
        marks: Collection,
        new: Collection,
        page: list[_Seen],
        columns: Sequence[str],
        work: Work,
        partition: str | None,
    ) -> int:
        """Before the switch: make the shadow, then the new collection, what they must be."""
        due = self._mended(base, marks, page, columns, work)
        others = [one for one in due if one.fresh]
        self._write(marks, others)
        rows = [one for one in due if not self._is_put(one.seen.new, one.mark)]
        for there in (False, True):
            some = [self._made(one) for one in rows if (one.seen.new is not None) is there]
            new.put(some, fresh=not there, partition=partition)
        return len({one.seen.key for one in (*others, *rows)})

    def _bring_over(self, columns: Sequence[str], work: Work) -> None:
        """After the switch: what the application wrote to the old collection before it."""
        view = self._store.view()
        marks, old, new = view.marks, view.old, view.base
        if marks is None or not view.switched:
            raise StoreError(
                "is not as it was left in the midst of finish",
                where=self._store.name,
                step="look at its collections: nothing was dropped",
            )
        for partition in self._partitions(old):
            for page in self._pages(old, marks, new, partition):
                changed = [seen for seen in page if self._changed_before_switch(seen)]
                due = self._mended(old, marks, changed, columns, work)
                new.put([self._made(one) for one in due], partition=partition)
                self._write(marks, due)
        self._forget(old, marks, new)

    def _changed_before_switch(self, seen: _Seen) -> bool:
        """Whether a row is to be brought over: it came or changed, and nobody has touched it in the
        new collection since."""
        if seen.mark is None:
            return seen.new is None
        return seen_in(seen.mark) != seen.old.hashed and self._is_put(seen.new, seen.mark)

    def _forget(self, base: Collection, marks: Collection, new: Collection) -> int:
        """Take rows that the application has deleted from the new collection and the shadow."""
        id, gone = self._store.id, 0
        for page in marks.pages(self._fields(marks), size=_PAGE):
            ids = [mark[id] for mark in page]
            there = base.between(ids[0], ids[-1], [id])
            left = [mark for mark in page if mark[id] not in there]
            if not left:
                continue
            put = self._known(new, [mark[id] for mark in left])
            new.delete([mark[id] for mark in left if self._is_put(put.get(mark[id]), mark)])
            marks.delete([mark[id] for mark in left])
            gone += len(left)
        return gone

    def _take_back(self) -> None:
        """What the application has done to the new collection while it had its name."""
        view = self._store.view()
        if view.marks is None:
            return
        base, marks, new = view.base, view.marks, Collection(self._database, self._new)
        id, fields = self._store.id, self._fields(marks)
        for page in marks.pages([id], size=_PAGE):
            ids = [mark[id] for mark in page]
            kept = new.between(ids[0], ids[-1], [id])
            base.delete([key for key in ids if key not in kept])
        for partition in self._partitions(new):
            for page in new.pages(new.all_fields, size=_PAGE, partition=partition):
                first, last = page[0][id], page[-1][id]
                beside = marks.between(first, last, fields)
                was = self._hashed(base, base.between(first, last, base.all_fields))
                known = self._hashed(new, {row[id]: row for row in page})
                for there in (False, True):
                    told = [
                        self._returned(found, beside.get(key), was.get(key), base)
                        for key, found in known.items()
                        if (key in was) is there
                    ]
                    some = [row for row in told if row is not None]
                    base.put(some, fresh=not there, partition=partition)

    def _returned(
        self, found: _Known, mark: Row | None, was: _Known | None, base: Collection
    ) -> Row | None:
        """What the old collection is to get of a row that the new one has; None: nothing.

        A vector of the new model cannot go back: where the application has written one, or taken
        one away, or where there never was an old one, the row has none.
        """
        vector = self._store.vector
        if mark is not None and self._is_put(found, mark):
            return None
        if was is not None and mark is None and found.hashed[1] == was.hashed[1]:
            # Brought over in the moment of the kill.
            return None
        if was is not None and (mark is None or self._has_vector(found, mark)):
            return {**found.row, vector: was.row[vector]}
        none = np.zeros(base.shape.fields[vector].dim, np.float32)
        return {**found.row, vector: none}

    def _mended(
        self,
        base: Collection,
        marks: Collection,
        page: Sequence[_Seen],
        columns: Sequence[str],
        work: Work,
    ) -> list[_Due]:
        """What must be held of these rows, `work` having looked at them."""
        if not page:
            return []
        added, id = marks.shape.added, self._store.id
        shown = self._store.batch_of(
            base, [seen.old.row for seen in page], [seen.mark for seen in page], columns, added
        )
        written = _written(work(shown), id, added)
        out = []
        for seen in page:
            fresh = seen.key in written
            if fresh or seen.mark is None or seen_in(seen.mark) != seen.old.hashed:
                values = {name: added_value(seen.mark, one) for name, one in added.items()}
                values = written.get(seen.key, values)
                told = None if values[self._column] is None else values
                mark: Row = mark_of((id, seen.key), told, added, seen.old.hashed)
                out.append(_Due(seen, mark, True))
            else:
                out.append(_Due(seen, seen.mark, False))
        return out

    def _pages(
        self, base: Collection, marks: Collection, new: Collection, partition: str | None
    ) -> Iterator[list[_Seen]]:
        """Rows in pages, with what is known of them elsewhere."""
        id, fields = self._store.id, self._fields(marks)
        for page in base.pages(base.all_fields, size=_PAGE, partition=partition):
            first, last = page[0][id], page[-1][id]
            beside = marks.between(first, last, fields)
            put = self._hashed(new, new.between(first, last, new.all_fields))
            known = self._hashed(base, {row[id]: row for row in page})
            yield [_Seen(key, old, beside.get(key), put.get(key)) for key, old in known.items()]

    def _known(self, collection: Collection, ids: Sequence[Id]) -> dict[Id, _Known]:
        return self._hashed(collection, collection.given(ids, collection.all_fields, level=STRONG))

    def _hashed(self, collection: Collection, rows: dict[Id, Row]) -> dict[Id, _Known]:
        found = hashes(list(rows.values()), collection.shape, self._store.vector)
        both = zip(*map(np.ndarray.tolist, found), strict=True)
        told = zip(rows.items(), both, strict=True)
        return {key: _Known(row, hashed) for (key, row), hashed in told}

    def _made(self, one: _Due) -> Row:
        """The row of the new collection. Milvus wants a vector of every row: zeros say none."""
        return {**one.seen.old.row, self._store.vector: _floats(one.mark[self._column])}

    def _is_put(self, found: _Known | None, mark: Row) -> bool:
        """Whether a row of the new collection is what was put there with this shadow."""
        if found is None or found.hashed[1] != seen_in(mark)[1]:
            return False
        return self._has_vector(found, mark)

    def _has_vector(self, found: _Known, mark: Row) -> bool:
        there, made = _floats(found.row[self._store.vector]), _floats(mark[self._column])
        return len(there) == len(made) and np.allclose(there, made, rtol=_CLOSE, atol=_CLOSE)

    def _write(self, marks: Collection, due: Sequence[_Due]) -> None:
        for there in (False, True):
            some = [one.mark for one in due if (one.seen.mark is not None) is there]
            marks.put(some, fresh=not there)

    def _fields(self, marks: Collection) -> list[str]:
        return list(marks.shape.fields)

    def _partitions(self, collection: Collection) -> list[str | None]:
        """Where rows are, one after the other; a field that says so does it again by itself."""
        if collection.shape.keyed:
            return [None]
        return list(self._database.call("list_partitions", collection.name))

    def _switch(self, aliases: Sequence[str]) -> None:
        """Let the name stand for the new collection, whatever of that was done before."""
        target = self._new if self._has(self._new) else self._home
        self._point(aliases, target)
        if self._by_alias:
            return
        if not self._has(self._old):
            self._rename(self._home, self._old)
        if not self._has(self._home):
            self._rename(self._new, self._home)

    def _switch_back(self, aliases: Sequence[str]) -> None:
        """Let the name stand for the old collection, whatever was done of the switch."""
        if not self._by_alias and self._has(self._old):
            if self._has(self._home):
                self._rename(self._home, self._new)
            self._rename(self._old, self._home)
        self._point(aliases, self._home)

    def _point(self, aliases: Sequence[str], target: str) -> None:
        for alias in aliases:
            if self._database.alias_target(alias) not in (None, target):
                self._database.call("alter_alias", target, alias)

    def _drop(self) -> None:
        """Drop the shadow and the old collection; the new one gets the name that this had."""
        drop(self._database, self._shadow)
        if self._by_alias and self._has(self._new):
            # Put aside first: one that is half dropped would keep its name from the other.
            if self._has(self._home):
                self._rename(self._home, self._old)
            self._rename(self._new, self._home)
        drop(self._database, self._old)

    def _rename(self, one: str, other: str) -> None:
        self._database.call("rename_collection", one, other)
        if not is_loaded(self._database, other):
            # A server keeps it so, milvus-lite does not.
            self._database.call("load_collection", other)


def _written(
    made: pa.RecordBatch | None, id: str, added: dict[str, Column]
) -> dict[Id, dict[str, Any]]:
    """What is to be written, by id and column; nothing of rows that lose their shared vector."""
    if made is None:
        return {}
    values: dict[str, Any] = {}
    for name, column in added.items():
        values[name] = made[name].to_pylist()
        if column.kind == "vector":
            there = made[name].is_valid().to_pylist()
            vectors = matrix(made[name])
            values[name] = [v if valid else None for v, valid in zip(vectors, there, strict=True)]
    ids = made[id].to_pylist()
    return {key: {name: found[at] for name, found in values.items()} for at, key in enumerate(ids)}


def _floats(vector: Any) -> NDArray[np.float32]:
    return np.asarray(vector, np.float32)
