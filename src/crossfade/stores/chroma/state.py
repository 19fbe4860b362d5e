"""What a migration keeps in Chroma beside the rows: values by name, and who may migrate a server's
collection.

Values are metadata of rows in a small collection. The right to migrate is a lease, and it is held
by whoever made the collection that stands for it: of two who make one of the same name, only one
succeeds. The holder renews its time in the notes on that collection. One that has run out is put
out of the way by its id, never by its name, so that nobody removes a lease that another has just
taken. The clocks of the machines must agree to within half the time of a lease.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from crossfade.errors import StoreError
from crossfade.stores.chroma.client import Database, connect
from crossfade.stores.chroma.collection import Collection
from crossfade.stores.chroma.rows import Records, beside
from crossfade.stores.contract import Column
from crossfade.stores.locking import held_by_other, renewed

COLLECTION = "crossfade_state"
_ADDED = "columns"
_VALUE = "value"
LEASE_SECONDS = 60.0


def named(key: str) -> str:
    """The name under which a value of a migration is kept, apart from the store's own."""
    return f"value/{key}"


def value_in(url: str, collection: str, key: str) -> str | None:
    """The value that is kept for a collection, whatever its vectors."""
    database = connect(url)
    try:
        return State(database, collection).get(named(key))
    finally:
        database.close()


class State:
    """The values of one collection."""

    def __init__(self, database: Database, collection: str) -> None:
        self.database = database
        self.collection = collection
        self.name = f"{database.name}#{collection}"
        self._kept: Collection | None = None

    def get(self, key: str) -> str | None:
        kept = self._there()
        found = None if kept is None else kept.get([self._row(key)], vectors=False)
        return str(found.metadatas[0][_VALUE]) if found is not None and len(found) else None

    def put(self, key: str, value: str | None) -> None:
        kept = self._there() or self._make()
        if value is None:
            kept.delete([self._row(key)])
            return
        # Every row of Chroma has a vector; this one is never searched.
        vector = np.ones((1, 1), np.float32)
        row = Records.made([self._row(key)], vector, [{_VALUE: value}])
        if kept.present(row.ids):
            kept.update(row)
        else:
            kept.upsert(row)

    def columns(self) -> dict[str, Column]:
        """The columns that were added, in their order."""
        told = json.loads(self.get(_ADDED) or "[]")
        return {name: Column(name, kind, dim) for name, kind, dim in told}

    def remember(self, added: dict[str, Column]) -> None:
        """These columns and no others."""
        told = [[c.name, c.kind, c.dim] for c in added.values()]
        self.put(_ADDED, json.dumps(told) if told else None)

    @contextmanager
    def lease(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the collection; `StoreError` if another does, or if the lease was lost meanwhile."""
        seconds = LEASE_SECONDS if seconds is None else seconds
        mine = self._take(seconds)
        if mine is None:
            raise held_by_other(self.name)

        def renew() -> bool:
            held = self._holds(mine)
            if held:
                mine.note({"until": time.time() + seconds})
            return held

        try:
            with renewed(seconds, renew, self.name):
                yield
        finally:
            if self._holds(mine):
                self._retire(mine)

    def _take(self, seconds: float) -> Collection | None:
        name = beside("lease", self.collection)
        self.database.sweep(self.collection)
        there = self.database.find(name)
        if there is not None:
            if _until(there) > time.time():
                return None
            self._retire(there)
        try:
            return self.database.create(name, notes={"until": time.time() + seconds})
        except StoreError:
            if self.database.find(name) is None:
                raise
            return None

    def _holds(self, mine: Collection) -> bool:
        there = self.database.find(beside("lease", self.collection))
        return there is not None and there.uid == mine.uid

    def _retire(self, lease: Collection) -> None:
        """Take a lease away, and no other."""
        with suppress(StoreError):
            self.database.discard(lease, self.collection)

    def _there(self) -> Collection | None:
        if self._kept is None:
            self._kept = self.database.find(COLLECTION)
        return self._kept

    def _make(self) -> Collection:
        try:
            self._kept = self.database.create(COLLECTION)
        except StoreError:
            # Another process may have made it in the meantime.
            if (found := self.database.find(COLLECTION)) is None:
                raise
            self._kept = found
        return self._kept

    def _row(self, key: str) -> str:
        return f"{self.collection}/{key}"


def _until(lease: Collection) -> float:
    """When a lease runs out."""
    told: Any = (lease.metadata or {}).get("until", 0.0)
    return float(told)
