"""The application's side of Chroma, with its own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from tests.stores.apps import TEXT_IDS


class ChromaApp:
    """Keeps its texts as metadata and as documents; ids are text."""

    text_ids, unit_length, rounds = TEXT_IDS, False, True
    space = "cosine"

    def __init__(self, client: Any, at: str) -> None:
        self.client = client
        self.name = f"items-{uuid4().hex[:8]}"
        self.address = f"{at}#{self.name}"

    @staticmethod
    def key(number: int) -> str:
        return f"{number:06d}"

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.client.create_collection(
            self.name,
            embedding_function=None,
            configuration={"hnsw": {"space": self.space}},
            metadata={"owner": "shop"},
        )
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        told = [{"body": body, "kind": kind} for body, kind in zip(bodies, kinds, strict=True)]
        self.open().add(ids=ids, embeddings=old, metadatas=told, documents=bodies)

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        self.open().update(
            ids=[key], embeddings=[old], metadatas=[{"body": body}], documents=[body]
        )

    def empty(self, key: Any) -> None:
        """Chroma has no row without a vector; zeros say as little."""
        collection = self.open()
        dim = len(collection.get(ids=[key], include=["embeddings"])["embeddings"][0])
        collection.update(ids=[key], embeddings=[np.zeros(dim, np.float32)])

    def delete(self, key: Any) -> None:
        self.open().delete(ids=[key])

    def old(self) -> dict[Any, np.ndarray]:
        found = self.open().get(include=["embeddings"])
        return dict(zip(found["ids"], np.asarray(found["embeddings"], np.float32), strict=True))

    def open(self) -> Any:
        return self.client.get_collection(self.name, embedding_function=None)

    def close(self) -> None:
        close(self.client)


def close(client: Any) -> None:
    """A client of a server leaves its connections open by itself."""
    for one in (client, client._admin_client):
        session = getattr(one._server, "_session", None)
        if session is not None:
            session.close()
    client.close()


def folder_app(folder: Path) -> ChromaApp:
    """In a folder that this process alone has open."""
    from crossfade.stores.chroma.client import local_client

    return ChromaApp(local_client(folder / "chroma"), f"chroma:{folder / 'chroma'}")
