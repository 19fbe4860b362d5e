"""What a migration keeps in Qdrant beside the rows: values by name, and who may migrate.

Both are points of a small collection without vectors. The right to migrate is a lease: it runs out
by itself when its holder dies, and the holder renews it while it lives. Taking it is one
conditional write, so that of two who try only one succeeds. The clocks of the machines must agree
to within half the time of a lease.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from crossfade.errors import StoreError
from crossfade.stores.contract import Column
from crossfade.stores.locking import held_by_other
from crossfade.stores.qdrant.client import Place, connect, telling

COLLECTION = "crossfade_state"
_ADDED = "columns"
LEASE_SECONDS = 60.0


def named(key: str) -> str:
    """The name under which a value of a migration is kept, apart from the store's own."""
    return f"value/{key}"


def value_in(url: str, collection: str, key: str) -> str | None:
    """The value that is kept for a collection, whatever its vectors."""
    place = connect(url)
    try:
        return State(place, collection).get(named(key))
    finally:
        place.close()


class State:
    """The values of one collection."""

    def __init__(self, place: Place, collection: str) -> None:
        self.client = place.client
        self.name = place.name
        self.collection = collection

    def get(self, key: str) -> str | None:
        with telling(self.name):
            if not self.client.collection_exists(COLLECTION):
                return None
            found = self.client.retrieve(COLLECTION, [self._point(key)], with_payload=True)
            return str(found[0].payload["value"]) if found else None

    def put(self, key: str, value: str | None) -> None:
        from qdrant_client import models

        self._ensure()
        with telling(self.name):
            if value is None:
                self.client.delete(COLLECTION, models.PointIdsList(points=[self._point(key)]))
            else:
                self._write(key, {"value": value})

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
        ended, lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not ended.wait(seconds / 4):
                # A server that is away for a moment is no reason to give up; one that gave the
                # lease to another is.
                with suppress(StoreError):
                    if not self._renew(owner, seconds):
                        lost.set()
                        return

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._give_back(owner)
        if lost.is_set():
            raise StoreError(
                "the right to migrate passed to another process, for this one was away too long",
                where=f"{self.name}#{self.collection}",
                step="look at the status, then run the step again",
            )

    def _take(self, owner: str, seconds: float) -> bool:
        from qdrant_client import models

        now = time.time()
        free = models.FieldCondition(key="until", range=models.Range(lt=now))
        lease = {"owner": owner, "until": now + seconds}
        with telling(self.name):
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

        with telling(self.name):
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
        with telling(self.name):
            self.client.delete(COLLECTION, models.FilterSelector(filter=models.Filter(must=mine)))

    def _owner(self) -> str | None:
        with telling(self.name):
            found = self.client.retrieve(COLLECTION, [self._point("lease")], with_payload=True)
        return str(found[0].payload["owner"]) if found else None

    def _write(self, key: str, payload: dict[str, Any], **how: Any) -> None:
        from qdrant_client import models

        told = {"collection": self.collection, "key": key, **payload}
        point = models.PointStruct(id=self._point(key), vector={}, payload=told)
        self.client.upsert(COLLECTION, [point], wait=True, **how)

    def _ensure(self) -> None:
        from qdrant_client.http.exceptions import UnexpectedResponse

        with telling(self.name):
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
