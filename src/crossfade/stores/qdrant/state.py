"""What a migration keeps in Qdrant beside the rows: values by name, and who may migrate.

Both are points of a small collection without vectors. The right to migrate is a lease: it runs out
by itself when its holder dies, and the holder renews it while it lives. Taking it is one
conditional write, so that of two who try only one succeeds. The clocks of the machines must agree
to within half the time of a lease.

Workers that fill a collection together agree on a value that carries a revision: a change of it is
written on the condition that the revision is still the one that was read. A worker writes itself
down there before it looks for the lease, and whoever takes the lease looks for workers after that:
of two who come at the same moment at least one sees the other, and goes.
"""

from __future__ import annotations

import json
import random
import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossfade.errors import StoreError
from crossfade.stores.contract import Change, Column
from crossfade.stores.locking import held_by_other, renewed
from crossfade.stores.qdrant.client import Database, connect, translate_errors

COLLECTION = "crossfade_state"
_ADDED = "columns"
LEASE_SECONDS = 60.0
# Of workers that change one value at the same moment all but one try again.
_ATTEMPTS, _PAUSE = 200, 0.02
_UNTIL_GIVEN_BACK = 2.0
_REVISION = "revision"


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
        self.client = database.client
        self.name = database.name
        self.collection = collection

    def get(self, key: str) -> str | None:
        with translate_errors(self.name):
            if not self.client.collection_exists(COLLECTION):
                return None
            found = self.client.retrieve(COLLECTION, [self._point(key)], with_payload=True)
            return str(found[0].payload["value"]) if found else None

    def put(self, key: str, value: str | None) -> None:
        from qdrant_client import models

        self._ensure()
        with translate_errors(self.name):
            if value is None:
                self.client.delete(COLLECTION, models.PointIdsList(points=[self._point(key)]))
            else:
                self._write(key, {"value": value})

    def change(self, key: str, change: Change) -> str | None:
        """What `change` makes of a value in its place, if it is what it was; else once more."""
        from qdrant_client import models

        self._ensure()
        for _ in range(_ATTEMPTS):
            found = self._payload(key)
            before = None if found is None else str(found["value"])
            after = change(before, time.time())
            if after == before:
                return after
            revision = secrets.token_hex(8)
            same: list[Any] = []
            if found is not None and _REVISION in found:
                same.append(_is(_REVISION, found[_REVISION]))
            elif found is not None:
                nothing = models.PayloadField(key=_REVISION)
                same.append(models.IsEmptyCondition(is_empty=nothing))
            with translate_errors(self.name):
                if after is None:
                    same.append(models.HasIdCondition(has_id=[self._point(key)]))
                    chosen = models.FilterSelector(filter=models.Filter(must=same))
                    self.client.delete(COLLECTION, chosen, wait=True)
                else:
                    mode = models.UpdateMode
                    self._write(
                        key,
                        {"value": after, _REVISION: revision},
                        update_mode=mode.INSERT_ONLY if found is None else mode.UPDATE_ONLY,
                        update_filter=models.Filter(must=same) if same else None,
                    )
            now = self._payload(key)
            if (now is None) if after is None else (now or {}).get(_REVISION) == revision:
                return after
            # Another was quicker, or came after: what is there now tells which.
            time.sleep(_PAUSE * random.random())  # noqa: S311  (no secret)
        raise StoreError(
            "too many processes change it at the same time",
            where=f"{self.name}#{self.collection}",
            step="use fewer workers",
        )

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Be one of its workers; `StoreBusy` if one process holds the collection alone."""
        self._ensure()
        begin = time.monotonic()
        while (lease := self._payload("lease")) and float(lease["until"]) > time.time():
            # Whoever takes it to look whether there are workers gives it back at once.
            if time.monotonic() - begin > _UNTIL_GIVEN_BACK:
                raise held_by_other(f"{self.name}#{self.collection}")
            time.sleep(0.1)
        yield

    def _payload(self, key: str) -> dict[str, Any] | None:
        with translate_errors(self.name):
            found = self.client.retrieve(COLLECTION, [self._point(key)], with_payload=True)
        return dict(found[0].payload) if found else None

    def columns(self) -> dict[str, Column]:
        """The columns that were added, in their order."""
        told = json.loads(self.get(_ADDED) or "[]")
        return {name: Column(name, kind, dim) for name, kind, dim in told}

    def remember(self, added: dict[str, Column]) -> None:
        """These columns and no others."""
        told = [[c.name, c.kind, c.dim] for c in added.values()]
        self.put(_ADDED, json.dumps(told) if told else None)

    @contextmanager
    def lease(self, seconds: float = LEASE_SECONDS) -> Iterator[None]:
        """Hold the collection; `StoreError` if another does, or if the lease was lost meanwhile."""
        owner = secrets.token_hex(8)
        self._ensure()
        if not self._take(owner, seconds):
            raise held_by_other(f"{self.name}#{self.collection}")
        name = f"{self.name}#{self.collection}"
        try:
            with renewed(seconds, lambda: self._renew(owner, seconds), name):
                yield
        finally:
            self._give_back(owner)

    def _take(self, owner: str, seconds: float) -> bool:
        from qdrant_client import models

        now = time.time()
        free = models.FieldCondition(key="until", range=models.Range(lt=now))
        lease = {"owner": owner, "until": now + seconds}
        with translate_errors(self.name):
            self._write("lease", lease, update_mode=models.UpdateMode.INSERT_ONLY)
            self._write(
                "lease",
                lease,
                update_mode=models.UpdateMode.UPDATE_ONLY,
                update_filter=models.Filter(must=[free]),
            )
        return self._owner() == owner

    def _renew(self, owner: str, seconds: float) -> bool:
        from qdrant_client import models

        with translate_errors(self.name):
            self._write(
                "lease",
                {"owner": owner, "until": time.time() + seconds},
                update_mode=models.UpdateMode.UPDATE_ONLY,
                update_filter=models.Filter(must=[_is("owner", owner)]),
            )
        return self._owner() == owner

    def _give_back(self, owner: str) -> None:
        from qdrant_client import models

        mine = [models.HasIdCondition(has_id=[self._point("lease")]), _is("owner", owner)]
        with translate_errors(self.name):
            self.client.delete(COLLECTION, models.FilterSelector(filter=models.Filter(must=mine)))

    def _owner(self) -> str | None:
        found = self._payload("lease")
        return None if found is None else str(found["owner"])

    def _write(self, key: str, payload: dict[str, Any], **how: Any) -> None:
        from qdrant_client import models

        told = {"collection": self.collection, "key": key, **payload}
        point = models.PointStruct(id=self._point(key), vector={}, payload=told)
        self.client.upsert(COLLECTION, [point], wait=True, **how)

    def _ensure(self) -> None:
        from qdrant_client.http.exceptions import UnexpectedResponse

        with translate_errors(self.name):
            if not self.client.collection_exists(COLLECTION):
                try:
                    self.client.create_collection(COLLECTION, vectors_config={})
                except (UnexpectedResponse, ValueError):
                    # A server's and local mode's word for one that is there: another process may
                    # have made it in the meantime.
                    if not self.client.collection_exists(COLLECTION):
                        raise

    def _point(self, key: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"crossfade\0{self.collection}\0{key}"))


def _is(key: str, value: str) -> Any:
    from qdrant_client import models

    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
