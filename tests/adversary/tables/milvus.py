"""A user of Milvus: a server, or milvus-lite in the one process that may have the file open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

from crossfade.stores.milvus.client import local_client, release

_MOST = 16_384


class MilvusTable:
    """Writes whole rows, as Milvus wants them; a row without a vector has one of zeros."""

    unit_length, transactions, zero_is_none = False, False, True

    def __init__(self, place: str) -> None:
        url, _, self._name = place.partition("#")
        self._file = None
        if url.startswith("milvus:"):
            self._file = Path(url.removeprefix("milvus:"))
            self._client: Any = local_client(self._file)
            self._load()
        else:
            self._client = MilvusClient(uri=url.removeprefix("milvus+"))

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        client = self._client
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("body", DataType.VARCHAR, max_length=1000)
        schema.add_field("kind", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=D)
        index = client.prepare_index_params()
        how = {"index_type": "HNSW", "M": 8, "efConstruction": 64}
        how = how if indexed else {"index_type": "FLAT"}
        index.add_index("vector", metric_type="COSINE", **how)
        client.create_collection(self._name, schema=schema, consistency_level="Strong")
        client.create_index(self._name, index, sync=False)
        client.load_collection(self._name)
        client.upsert(self._name, [_row(key, content, D) for key, content in rows.items()])

    def insert(self, key: int, content: Content) -> None:
        self.set_both({key: content})

    def set_text(self, key: int, content: Content) -> None:
        self.set_both({key: content})

    def set_vector(self, key: int, content: Content) -> None:
        self.set_both({key: content})

    def set_both(self, rows: Mapping[int, Content]) -> None:
        dim = self.dimension()
        if dim is None:
            raise Refused("there is no collection")
        told = [_row(key, content, dim) for key, content in rows.items()]
        try:
            self._client.upsert(self._name, told)
        except MilvusException:
            now = self.dimension()
            if all(len(row["vector"]) == now for row in told):
                raise
            raise Refused("the vector is of the new dimension, or there is none") from None

    def delete(self, key: int) -> None:
        try:
            self._client.delete(self._name, ids=[key])
        except MilvusException:
            if self.dimension() is not None:
                raise
            raise Refused("there is no collection") from None

    def dimension(self, key: int | None = None) -> int | None:
        if not self._client.has_collection(self._name):
            return None
        fields = self._client.describe_collection(self._name)["fields"]
        return next(int(f["params"]["dim"]) for f in fields if f["name"] == "vector")

    def rows(self) -> list[Found]:
        found = self._client.query(
            self._name,
            filter="id >= 0",
            output_fields=["id", "body", "kind", "vector"],
            limit=_MOST,
            consistency_level="Strong",
        )
        return [Found(row["id"], row["body"], row["kind"], _vector(row["vector"])) for row in found]

    def leftovers(self) -> list[str]:
        fields = self._client.describe_collection(self._name)["fields"]
        beside = [
            name
            for name in self._client.list_collections()
            if name.endswith(f"_{self._name}") and name.startswith("crossfade_")
        ]
        return sorted({field["name"] for field in fields} - set(OWN)) + beside

    def lost(self) -> list[str]:
        """The application's index of its vectors."""
        there = "vector" in self._client.list_indexes(self._name)
        return [] if there else ["the application's index of its vectors"]

    def close(self) -> None:
        if self._file is None:
            self._client.close()
        else:
            release(self._file, self._client)

    def _load(self) -> None:
        """Every process loads what it works on."""
        if self._client.has_collection(self._name):
            self._client.load_collection(self._name)


def _row(key: int, content: Content, dim: int) -> dict[str, Any]:
    vector = np.zeros(dim, np.float32) if content.vector is None else content.vector
    return {"id": key, "body": content.body, "kind": content.kind, "vector": vector}


def _vector(found: Any) -> np.ndarray | None:
    vector = np.array(found, np.float32)
    return vector if vector.any() else None
