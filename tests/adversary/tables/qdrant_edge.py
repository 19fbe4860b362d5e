"""A user of Qdrant's engine, in the one process that may have the folder open."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

from crossfade.stores.qdrant_edge.client import local_shard, release

_UPDATE = edge.UpdateOperation


class QdrantEdgeTable:
    """Shares the process's shard, as the documentation tells applications to."""

    unit_length, transactions = True, False
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._folder = Path(place.partition(":")[2])
        self._shard: Any = None
        if self._folder.exists():
            self._shard = local_shard(self._folder)

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        self._folder.mkdir()
        params = edge.EdgeVectorParams(size=D, distance=edge.Distance.Cosine)
        config = edge.EdgeConfig(vectors={"vector": params})
        edge.EdgeShard.create(str(self._folder), config).close()
        self._shard = local_shard(self._folder)
        self._do("upsert_points", [_point(key, content) for key, content in rows.items()])

    def insert(self, key: int, content: Content) -> None:
        self._look_first(content)
        self._try(lambda: self._do("upsert_points", [_point(key, content)]))

    def set_text(self, key: int, content: Content) -> None:
        self._try(lambda: self._do("set_payload", [key], {"body": content.body}))

    def set_vector(self, key: int, content: Content) -> None:
        if content.vector is None:
            self._try(lambda: self._do("delete_vectors", [key], ["vector"]))
            return
        self._look_first(content)
        vector = edge.PointVectors(id=key, vector={"vector": content.vector.tolist()})
        self._try(lambda: self._do("update_vectors", [vector]))

    def set_both(self, rows: Mapping[int, Content]) -> None:
        points = [_point(key, content) for key, content in rows.items()]
        self._look_first(*rows.values())
        self._try(lambda: self._do("upsert_points", points))

    def delete(self, key: int) -> None:
        self._try(lambda: self._do("delete_points", [key]))

    def dimension(self, key: int | None = None) -> int | None:
        found = self._vectors().get("vector")
        return None if found is None else int(found["size"])

    def rows(self) -> list[Found]:
        return [
            Found(
                one.id,
                one.payload.get("body"),
                one.payload.get("kind"),
                _vector((one.vector or {}).get("vector")),
            )
            for one in self._all()
        ]

    def leftovers(self) -> list[str]:
        names = {name for one in self._all() for name in (*one.payload, *(one.vector or {}))}
        return sorted((names | set(self._vectors())) - set(OWN))

    def lost(self) -> list[str]:
        return []

    def close(self) -> None:
        if self._shard is not None:
            release(self._folder)

    def _all(self) -> list[Any]:
        asked = edge.ScrollRequest(limit=100_000, with_payload=True, with_vector=True)
        return list(self._shard.scroll(asked)[0])

    def _vectors(self) -> dict[str, Any]:
        return dict(json.loads((self._folder / "edge_config.json").read_text())["vectors"])

    def _do(self, name: str, *given: Any) -> None:
        self._shard.update(getattr(_UPDATE, name)(*given))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:
            if self.dimension() == D:
                raise
            raise self._refusal() from None

    def _look_first(self, *contents: Content) -> None:
        """What the engine refuses while it drops a vector, it may have done by half: the point has
        another text, and no vector."""
        if self.dimension() != D and any(one.vector is not None for one in contents):
            raise self._refusal()

    def _refusal(self) -> Refused:
        gone = self.dimension() is None
        return Refused("there is no vector" if gone else "the vector is of the new dimension")


def _point(key: int, content: Content) -> Any:
    vector = {} if content.vector is None else {"vector": content.vector.tolist()}
    return edge.Point(id=key, vector=vector, payload={"body": content.body, "kind": content.kind})


def _vector(found: Any) -> np.ndarray | None:
    return None if found is None else np.array(found, np.float32)
