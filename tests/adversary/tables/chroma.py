"""A user of a Chroma server, who opens the collection once and has it open from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import chromadb
import numpy as np
from chromadb.config import Settings
from chromadb.errors import ChromaError, InvalidArgumentError, NotFoundError
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import Found, Refused
from tests.stores.chroma.app import close


class ChromaTable:
    """Chroma knows an open collection by its id; one that is deleted is opened again by name."""

    unit_length, transactions, zero_is_none = True, False, True

    def __init__(self, place: str) -> None:
        url, _, self._name = place.partition("#")
        parts = urlsplit(url)
        settings = Settings(anonymized_telemetry=False)
        self._client = chromadb.HttpClient(parts.hostname, parts.port, settings=settings)
        self._handle: Any = None

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        self._handle = self._client.create_collection(
            self._name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        self._handle.add(
            ids=[_id(key) for key in rows],
            embeddings=[_given(content, D) for content in rows.values()],
            metadatas=[_told(content) for content in rows.values()],
        )

    def insert(self, key: int, content: Content) -> None:
        self._put(key, content, {"metadatas": [_told(content)]})

    def set_text(self, key: int, content: Content) -> None:
        self._try(lambda c: c.update(ids=[_id(key)], metadatas=[{"body": content.body}]))

    def set_vector(self, key: int, content: Content) -> None:
        self._put(key, content, {}, new=False)

    def set_both(self, rows: Mapping[int, Content]) -> None:
        for key, content in rows.items():
            self._put(key, content, {"metadatas": [{"body": content.body}]}, new=False)

    def delete(self, key: int) -> None:
        self._try(lambda c: c.delete(ids=[_id(key)]))

    def dimension(self, key: int | None = None) -> int | None:
        try:
            found = self._again(lambda c: c.get(limit=1, include=["embeddings"])["embeddings"])
        except NotFoundError:
            return None
        return len(found[0]) if len(found) else None

    def rows(self) -> list[Found]:
        found = self._again(lambda c: c.get(include=["embeddings", "metadatas"]))
        each = zip(found["ids"], found["metadatas"], found["embeddings"], strict=True)
        return [Found(int(i), m.get("body"), m.get("kind"), _vector(v)) for i, m, v in each]

    def leftovers(self) -> list[str]:
        metadatas = self._again(lambda c: c.get(include=["metadatas"]))["metadatas"]
        fields = {name for told in metadatas for name in told} - {"body", "kind"}
        ours = [one.name for one in self._client.list_collections()]
        # A lease is held by its time, and stays where its holder was killed.
        kept = {"crossfade_state", f"crossfade_lease_{self._name}"}
        return sorted(fields) + [
            name for name in ours if name.endswith(f"_{self._name}") and name not in kept
        ]

    def lost(self) -> list[str]:
        space = self._again(lambda c: c).configuration_json["hnsw"]["space"]
        return [] if space == "cosine" else ["its distance"]

    def close(self) -> None:
        close(self._client)

    def _put(self, key: int, content: Content, more: dict[str, Any], *, new: bool = True) -> None:
        def act(collection: Any) -> None:
            dim = self.dimension() or D if content.vector is None else len(content.vector)
            do = collection.add if new else collection.update
            do(ids=[_id(key)], embeddings=[_given(content, dim)], **more)

        self._try(act)

    def _try(self, act: Callable[[Any], object]) -> None:
        try:
            self._again(act)
        except NotFoundError:
            raise Refused("there is no collection") from None
        except (InvalidArgumentError, ChromaError, ValueError):
            if self.dimension() in (None, D):
                raise
            raise Refused("the collection is of the new dimension") from None

    def _again(self, act: Callable[[Any], Any]) -> Any:
        """With the collection that is open; by its name if that is gone."""
        for last in (False, True):
            if self._handle is None:
                self._handle = self._client.get_collection(self._name, embedding_function=None)
            try:
                return act(self._handle)
            except NotFoundError:
                self._handle = None
                if last:
                    raise
        return None


def _id(key: int) -> str:
    return f"{key:08d}"


def _told(content: Content) -> dict[str, Any]:
    return {"body": content.body, "kind": content.kind}


def _given(content: Content, dim: int) -> np.ndarray:
    """Chroma has no row without a vector; zeros say as little."""
    return np.zeros(dim, np.float32) if content.vector is None else content.vector


def _vector(found: Any) -> np.ndarray | None:
    vector = np.array(found, np.float32)
    return vector if vector.any() else None
