"""Qdrant's engine in process: a shard in a folder, migrated as a collection of a server is.

All but the way to it is the Qdrant store's own. What a migration keeps beside the rows is a file
next to the folder, and one migration at a time is a lock there: the folder is the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossfade.distance import Distance
from crossfade.stores.locking import folder_lock
from crossfade.stores.qdrant.client import Database, translate_errors
from crossfade.stores.qdrant.state import State, named
from crossfade.stores.qdrant.store import QdrantStore
from crossfade.stores.qdrant_edge.client import EdgePlace, connect
from crossfade.stores.values import FileValues, beside

# A shard is one collection, and has no name for it.
_SHARD = "shard"


class EdgeState(State):
    """The values of one shard, in a file beside its folder."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, _SHARD)
        self._file = FileValues(beside(folder, "json"))

    def get(self, key: str) -> str | None:
        return self._file.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._file.put(key, value)


class QdrantEdgeStore(QdrantStore):
    """A shard of Qdrant's engine."""

    kind = "qdrant-edge"

    def __init__(
        self,
        url: str,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        super().__init__(url, _SHARD, id=id, vector=vector, distance=distance)

    def build_index(self, column: str) -> None:
        """The engine has no thread of its own that does it."""
        with translate_errors(self.name):
            self._client.optimize()

    @contextmanager
    def lock(self) -> Iterator[None]:
        with folder_lock(beside(self._shard.at, "lock"), self.name):
            for what in ("json", "config"):
                FileValues(beside(self._shard.at, what)).clean()
            yield

    def _reach(self, url: str) -> Database:
        self._shard: EdgePlace = connect(url)
        return self._shard

    def _named(self) -> str:
        return self._database.name

    def _values(self) -> State:
        return EdgeState(self._database, self._shard.at)


def value_in(url: str, key: str) -> str | None:
    """The value that is kept for a shard, whatever its vectors; the shard is not opened."""
    return FileValues(beside(Path(url.partition(":")[2]), "json")).get(named(key))
