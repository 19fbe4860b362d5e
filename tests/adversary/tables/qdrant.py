"""A user of Qdrant's local mode, in the one process that may have the folder open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from qdrant_client import models
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

from crossfade.stores.qdrant.client import local_client, release

_ITEMS = "items"


class QdrantTable:
    """Shares the process's client, as the documentation tells applications to."""

    unit_length, transactions = True, False
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._folder = Path(place.removeprefix("qdrant:").partition("#")[0])
        self._client = local_client(self._folder)

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        params = models.VectorParams(size=D, distance=models.Distance.COSINE)
        self._client.create_collection(_ITEMS, vectors_config={"vector": params})
        self._client.upsert(_ITEMS, [_point(key, content) for key, content in rows.items()])

    def insert(self, key: int, content: Content) -> None:
        self._try(lambda: self._client.upsert(_ITEMS, [_point(key, content)]))

    def set_text(self, key: int, content: Content) -> None:
        self._try(lambda: self._client.set_payload(_ITEMS, {"body": content.body}, [key]))

    def set_vector(self, key: int, content: Content) -> None:
        if content.vector is None:
            self._try(lambda: self._client.delete_vectors(_ITEMS, ["vector"], [key]))
            return
        vector = models.PointVectors(id=key, vector={"vector": content.vector.tolist()})
        self._try(lambda: self._client.update_vectors(_ITEMS, [vector]))

    def set_both(self, rows: Mapping[int, Content]) -> None:
        points = [_point(key, content) for key, content in rows.items()]
        self._try(lambda: self._client.upsert(_ITEMS, points))

    def delete(self, key: int) -> None:
        self._try(lambda: self._client.delete(_ITEMS, models.PointIdsList(points=[key])))

    def dimension(self, key: int | None = None) -> int | None:
        found = self._vectors().get("vector")
        return None if found is None else int(found.size)

    def rows(self) -> list[Found]:
        found, _ = self._client.scroll(_ITEMS, limit=100_000, with_vectors=True)
        return [
            Found(
                record.id,
                record.payload.get("body"),
                record.payload.get("kind"),
                _vector((record.vector or {}).get("vector")),
            )
            for record in found
        ]

    def leftovers(self) -> list[str]:
        found, _ = self._client.scroll(_ITEMS, limit=100_000, with_vectors=True)
        names = {name for record in found for name in (*record.payload, *(record.vector or {}))}
        return sorted((names | set(self._vectors())) - set(OWN))

    def lost(self) -> list[str]:
        return []

    def close(self) -> None:
        release(self._folder)

    def _vectors(self) -> dict[str, Any]:
        return dict(self._client.get_collection(_ITEMS).config.params.vectors)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (ValueError, KeyError):
            dim = self.dimension()
            if dim == D:
                raise
            why = "there is no vector" if dim is None else "the vector is of the new dimension"
            raise Refused(why) from None


def _point(key: int, content: Content) -> models.PointStruct:
    vector = {} if content.vector is None else {"vector": content.vector.tolist()}
    return models.PointStruct(
        id=key, vector=vector, payload={"body": content.body, "kind": content.kind}
    )


def _vector(found: Any) -> np.ndarray | None:
    return None if found is None else np.array(found, np.float32)
