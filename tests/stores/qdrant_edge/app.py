"""The application's side of Qdrant's engine, with its own library."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge

from crossfade.stores.qdrant_edge.client import local_shard, release

UPDATE = edge.UpdateOperation


class EdgeApp:
    """Shares its process's shard, as the documentation tells applications to."""

    # Ids are integers or UUIDs, and under cosine the engine keeps vectors at length one.
    text_ids = tuple(str(uuid.UUID(int=n << 96 | 7)) for n in (31, 4, 15, 926, 53, 58, 97))
    unit_length = True
    vector_name = "vector"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shard"
        self.address = f"qdrant-edge:{self.folder}"
        self._opened = False

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.folder.mkdir(parents=True)
        params = edge.EdgeVectorParams(size=old.shape[1], distance=edge.Distance.Cosine)
        named = {self.vector_name: params} if self.vector_name else params
        edge.EdgeShard.create(str(self.folder), edge.EdgeConfig(vectors=named)).close()
        self.shard = local_shard(self.folder)
        self._opened = True
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        rows = zip(ids, bodies, kinds, old, strict=True)
        points = [
            edge.Point(
                id=_id(key),
                vector={self.vector_name: v.tolist()} if self.vector_name else v.tolist(),
                payload={"body": body, "kind": kind},
            )
            for key, body, kind, v in rows
        ]
        self.shard.update(UPDATE.upsert_points(points))

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        kind = self.shard.retrieve([_id(key)], True, False)[0].payload["kind"]
        self.insert([key], [body], [kind], old[None])

    def empty(self, key: Any) -> None:
        self.shard.update(UPDATE.delete_vectors([_id(key)], ["vector"]))

    def delete(self, key: Any) -> None:
        self.shard.update(UPDATE.delete_points([_id(key)]))

    def old(self) -> dict[Any, np.ndarray]:
        asked = edge.ScrollRequest(limit=10_000, with_payload=True, with_vector=True)
        found, _ = self.shard.scroll(asked)
        return {one.id: np.array(one.vector["vector"], np.float32) for one in found}

    def payloads(self) -> dict[Any, dict[str, Any]]:
        found, _ = self.shard.scroll(edge.ScrollRequest(limit=10_000, with_payload=True))
        return {one.id: one.payload for one in found}

    def close(self) -> None:
        if self._opened:
            release(self.folder)


def _id(key: Any) -> Any:
    return uuid.UUID(key) if isinstance(key, str) else key
