"""A collection of Qdrant's local mode, by itself or in a server's place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from qdrant_client import models

from crossfade.files.arrow import to_arrow
from crossfade.stores import Column
from crossfade.stores.qdrant import store as qdrant
from crossfade.stores.qdrant.client import Database, local_client, release

DIM, SHARED = 3, 4
ADDED = (Column("crossfade_vector", "vector", SHARED), Column("crossfade_state", "text"))


@pytest.fixture
def folder(tmp_path):
    """A folder with a local client that this process shares."""
    local_client(tmp_path / "qdrant")
    yield tmp_path / "qdrant"
    release(tmp_path / "qdrant")


@pytest.fixture
def client(folder):
    yield local_client(folder)
    release(folder)


@pytest.fixture
def as_server(monkeypatch, folder):
    """Stores that take the local client for a server."""

    class Kept(Database):
        def close(self) -> None:
            release(folder)

    def connect(url: str) -> Database:
        return Kept(local_client(folder), "qdrant://host:6333", None)

    monkeypatch.setattr(qdrant, "connect", connect)
    return "qdrant://host:6333#items"


def fill(client, vectors_config, rows=6, name="", ids=None):
    client.create_collection("items", vectors_config=vectors_config)
    vectors = np.random.default_rng(0).normal(size=(rows, DIM)).astype(np.float32)
    client.upsert(
        "items",
        [
            models.PointStruct(
                id=ids[i] if ids else i,
                vector={name: v.tolist()} if name else v.tolist(),
                payload={"body": f"text {i}", "price": i / 2, "new": i % 2 == 0},
            )
            for i, v in enumerate(vectors)
        ],
    )
    return vectors


def params(distance=models.Distance.COSINE):
    return models.VectorParams(size=DIM, distance=distance)


def written(ids, state="forward"):
    vectors = np.random.default_rng(1).normal(size=(len(ids), SHARED)).astype(np.float32)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids),
            "crossfade_vector": to_arrow(vectors),
            "crossfade_state": pa.array([state] * len(ids)),
        }
    )
