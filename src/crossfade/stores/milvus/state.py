"""What a migration keeps beside the rows: values by name, and who may migrate.

Beside a file of milvus-lite both are files. On a server they are rows of a small collection,
`crossfade_state`. The right to migrate is a lease there: it runs out by itself when its holder
dies, and the holder renews it while it lives. Milvus has no conditional write, so it is taken by
Fischer's rule: whoever finds it free writes his name into it within a set time, waits as long
again, and holds it if his name still stands there. One who came between has overwritten it before
the wait was over. The clocks of the machines must agree to within half the time of a lease.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from crossfade.errors import StoreError
from crossfade.stores.locking import folder_lock, held_by_other, renewed
from crossfade.stores.milvus.client import Database, connect
from crossfade.stores.milvus.rows import literal
from crossfade.stores.milvus.schema import NEW, check_collection, create, make_ready
from crossfade.stores.values import FileValues, beside

COLLECTION = "crossfade_state"
LEASE_SECONDS = 60.0
# Time to find a lease free and write one's name, and again to wait.
SETTLE_SECONDS = 1.0
_TRIES = 5
# A text of Milvus has at most 65,535 bytes, and a character at most four.
_PART = 15_000


def home_of(database: Database, collection: str) -> str:
    """The collection that a name stands for, by the name that it had and will have.

    An alias stands for the new collection once `finish` has switched it.
    """
    target = None
    if collection not in database.call("list_collections"):
        target = database.alias_target(check_collection(collection))
    return (target or collection).removeprefix(NEW)


def value_in(url: str, collection: str, key: str) -> str | None:
    """The value that is kept for a collection, whatever its vectors."""
    database = connect(url)
    try:
        return state_of(database, home_of(database, check_collection(collection))).get(named(key))
    finally:
        database.close()


def named(key: str) -> str:
    """The name under which a value of a migration is kept, apart from the store's own."""
    return f"value/{key}"


class State(Protocol):
    """The values of one collection, and the right to migrate it."""

    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str | None) -> None: ...
    def lock(self) -> AbstractContextManager[None]: ...


def state_of(database: Database, home: str) -> State:
    """Where it is kept: beside the file, or on the server."""
    if database.file is not None:
        return FileState(database.file, home, f"{database.name}#{home}")
    return ServerState(database, home)


class FileState:
    """Files beside that of milvus-lite."""

    def __init__(self, file: Path, home: str, name: str) -> None:
        self._values = FileValues(beside(file, f"{home}.json"))
        self._lock, self._name = beside(file, f"{home}.lock"), name

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    @contextmanager
    def lock(self) -> Iterator[None]:
        with folder_lock(self._lock, self._name):
            # Of a process that was killed while it put a value.
            self._values.clean()
            yield


class ServerState:
    """Rows of a collection of the server."""

    def __init__(self, database: Database, home: str) -> None:
        self.database, self.home = database, home
        self.name = f"{database.name}#{home}"

    def get(self, key: str) -> str | None:
        found = self._rows(key)
        if not found:
            return None
        parts = found[0]["parts"]
        return "".join(row["value"] for row in found[:parts])

    def put(self, key: str, value: str | None) -> None:
        self._ensure()
        before = len(self._rows(key))
        texts = [] if value is None else _parts(value)
        if texts:
            # Rows of one call, in one shard: seen together or not at all.
            self.database.call("upsert", COLLECTION, self._made(key, texts))
        if before > len(texts):
            gone = [self._id(key, part) for part in range(len(texts), before)]
            self.database.call("delete", COLLECTION, ids=gone)

    @contextmanager
    def lock(self, seconds: float | None = None, settle: float | None = None) -> Iterator[None]:
        """Hold the collection; `StoreError` if another does, or if the lease was lost meanwhile."""
        owner = secrets.token_hex(8)
        seconds = LEASE_SECONDS if seconds is None else seconds
        settle = SETTLE_SECONDS if settle is None else settle
        if not self.take(owner, seconds, settle):
            raise held_by_other(self.name)

        def renew() -> bool:
            held = self.owner() in (owner, None)
            if held:
                self._lease(owner, seconds)
            return held

        try:
            with renewed(seconds, renew, self.name):
                yield
        finally:
            if self.owner() == owner:
                self.put("lease", None)

    def take(self, owner: str, seconds: float, settle: float) -> bool:
        """Whether it is held now."""
        self._ensure()
        for _ in range(_TRIES):
            begin = time.monotonic()
            if self.owner() not in (None, owner):
                return False
            self._lease(owner, seconds)
            # Slower than that, another may have found it free before this name was there.
            in_time = time.monotonic() - begin < settle
            time.sleep(settle)
            found = self.owner()
            if in_time and found is not None:
                return found == owner
        raise StoreError(
            f"answers too slowly to take a lease, {settle:g} s are not enough",
            where=self.name,
            step="try again when the server is calmer",
        )

    def owner(self) -> str | None:
        """Who holds the lease, if it has not run out."""
        told = json.loads(self.get("lease") or "{}")
        return str(told["owner"]) if told.get("until", 0.0) > time.time() else None

    def _lease(self, owner: str, seconds: float) -> None:
        """One write, without a look before it."""
        told = json.dumps({"owner": owner, "until": time.time() + seconds})
        self.database.call("upsert", COLLECTION, self._made("lease", [told]))

    def _rows(self, key: str) -> list[Any]:
        if not self.database.call("has_collection", COLLECTION):
            return []
        found = self.database.call(
            "query",
            COLLECTION,
            filter=f"name == {literal(f'{self.home}/{key}')}",
            output_fields=["id", "part", "parts", "value"],
            consistency_level="Strong",
        )
        return sorted(found, key=lambda row: row["part"])

    def _made(self, key: str, texts: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "id": self._id(key, part),
                "name": f"{self.home}/{key}",
                "part": part,
                "parts": len(texts),
                "value": text,
                "nothing": [0.0, 0.0],
            }
            for part, text in enumerate(texts)
        ]

    def _id(self, key: str, part: int) -> str:
        return f"{self.home}/{key}/{part}"

    def _ensure(self) -> None:
        from pymilvus import DataType  # type: ignore[import-untyped]

        database = self.database
        if not database.call("has_collection", COLLECTION):
            schema = database.client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1024)
            schema.add_field("name", DataType.VARCHAR, max_length=1024)
            schema.add_field("part", DataType.INT64)
            schema.add_field("parts", DataType.INT64)
            schema.add_field("value", DataType.VARCHAR, max_length=65_535)
            # Milvus has no collection without a vector.
            schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)
            # Another process may make the same at the same time, which is no error.
            create(database, COLLECTION, schema=schema, num_shards=1, consistency_level="Strong")
        make_ready(database, COLLECTION, {"nothing": {"index_type": "FLAT", "metric_type": "L2"}})


def _parts(text: str) -> list[str]:
    """
    >>> [len(part) for part in _parts("x" * 20_000)]
    [15000, 5000]
    """
    return [text[at : at + _PART] for at in range(0, max(1, len(text)), _PART)]
