"""One collection of Chroma: the calls that a migration needs, in pieces that a server takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossfade.stores.chroma.rows import Records

Float = NDArray[np.float32]
T = TypeVar("T")
# Numbers in one call: a server takes some 40 MB, and a number may be twenty characters.
_NUMBERS = 1 << 20
_TRIES, _PAUSE = 10, 0.002
_PASSING = ("Error finding id", "Nothing found on disk")
_EVERYTHING = ("embeddings", "documents", "metadatas", "uris")
# What a collection is made with; other settings are the server's own affair.
_SETTINGS = ("hnsw", "spann")
# Where older versions kept it; some libraries still look there.
_SPACE = "hnsw:space"


class Collection:
    """A collection by Chroma's own id of it: it stays the same under another name."""

    def __init__(
        self, handle: Any, database: str, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._handle = handle
        self._errors = errors
        self.uid = str(handle.id)
        self.where = f"{database}#{handle.name}"

    @property
    def name(self) -> str:
        """As it was when it was looked up, or last renamed."""
        return str(self._handle.name)

    @property
    def settings(self) -> dict[str, Any]:
        """How it compares and indexes, to make another one like it."""
        found: Mapping[str, Any] = self._handle.configuration_json
        return {name: dict(found[name]) for name in _SETTINGS if found.get(name)}

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The application's notes on the collection."""
        return dict(self._handle.metadata) if self._handle.metadata else None

    @property
    def space(self) -> str:
        """How it compares, in Chroma's word."""
        settings: dict[str, Any] = next(iter(self.settings.values()), {})
        return str(settings.get("space", "l2"))

    def count(self) -> int:
        with self._errors():
            return int(self._handle.count())

    def dim(self) -> int:
        """Of its vectors; 0 if there are none."""
        with self._errors():
            found = _steady(lambda: self._handle.get(limit=1, include=["embeddings"]))["embeddings"]
        return len(found[0]) if len(found) else 0

    def ids(self, where: Any = None, limit: int | None = None) -> list[str]:
        """The ids of all rows that match, as they are at one moment; Chroma's order."""
        with self._errors():
            return list(self._handle.get(where=where, limit=limit, include=[])["ids"])

    def present(self, ids: Sequence[str], where: Any = None) -> set[str]:
        """Which of these ids there are, among the rows that match."""
        out: set[str] = set()
        for some in self._pieces(ids, 1):
            with self._errors():
                out.update(self._handle.get(ids=some, where=where, include=[])["ids"])
        return out

    def sample(self, rows: int) -> Records:
        """Some rows, without their vectors."""
        with self._errors():
            found = self._handle.get(limit=rows, include=["documents", "metadatas", "uris"])
        return Records.of(found)

    def get(self, ids: Sequence[str], *, vectors: bool = True) -> Records:
        """The rows of these ids that are there, in the order given."""
        parts = []
        include = [what for what in _EVERYTHING if vectors or what != "embeddings"]
        for some in self._pieces(ids, 1024 if vectors else 1):
            with self._errors():
                read = partial(self._handle.get, ids=some, include=include)
                parts.append(Records.of(_steady(read)))
        return Records.joined(parts).ordered(ids)

    def pages(self, ids: Sequence[str], rows: int = 1000) -> Iterator[Records]:
        """The rows of these ids, some at a time."""
        for first in range(0, len(ids), rows):
            yield self.get(ids[first : first + rows])

    def upsert(self, rows: Records) -> None:
        """Add rows, or set their vectors and what is named of their metadata."""
        for at in self._pieces(range(len(rows)), rows.vectors.shape[1]):
            part = rows.take(at)
            self._send("_upsert", part, part.vectors)

    def update(self, rows: Records) -> None:
        """Set documents and metadata; vectors stay, and rows that are gone stay gone.

        By the client's inner call, for the outer one embeds every document that comes without a
        vector, by a model that it downloads.
        """
        for at in self._pieces(range(len(rows)), 64):
            self._send("_update", rows.take(at), None)

    def _send(self, call: str, rows: Records, vectors: Float | None) -> None:
        """Documents and addresses go only where there are some: None is not a value of theirs."""
        groups: dict[tuple[bool, bool], list[int]] = {}
        for at in range(len(rows)):
            has = (rows.documents[at] is not None, rows.uris[at] is not None)
            groups.setdefault(has, []).append(at)
        for (document, uri), some in groups.items():
            part = rows.take(some)
            with self._errors():
                getattr(self._handle._client, call)(
                    collection_id=self._handle.id,
                    ids=part.ids,
                    embeddings=None if vectors is None else list(vectors[some]),
                    metadatas=[meta or None for meta in part.metadatas],
                    documents=part.documents if document else None,
                    uris=part.uris if uri else None,
                    tenant=self._handle.tenant,
                    database=self._handle.database,
                )

    def delete(self, ids: Sequence[str]) -> None:
        for some in self._pieces(ids, 1):
            with self._errors():
                self._handle.delete(ids=some)

    def query(
        self, vector: Float, rows: int, *, ids: Sequence[str] | None = None, where: Any = None
    ) -> list[tuple[str, float]]:
        """The nearest rows with their distances, among these ids and those that match."""
        from chromadb.errors import InternalError

        among = None if ids is None else list(ids)

        def ask() -> Any:
            nonlocal among
            if among == []:
                return {"ids": [[]], "distances": [[]]}
            try:
                return self._handle.query(
                    query_embeddings=[np.asarray(vector, np.float32)],
                    n_results=rows,
                    ids=among,
                    where=where,
                    include=["distances"],
                )
            except InternalError:
                # An id that is gone meanwhile fails the whole call, and would fail the next.
                among = None if among is None else sorted(self.present(among))
                raise

        with self._errors():
            found = _steady(ask)
        return list(zip(found["ids"][0], found["distances"][0], strict=True))

    def rename(self, name: str) -> None:
        with self._errors():
            self._handle.modify(name=name)

    def note(self, metadata: dict[str, Any]) -> None:
        """Replace the notes on the collection; how it compares cannot be said again."""
        told = {name: value for name, value in metadata.items() if name != _SPACE}
        with self._errors():
            self._handle.modify(metadata=told)

    def _pieces(self, items: Sequence[Any], numbers: int) -> Iterator[list[Any]]:
        """Items of so many numbers each, as many as one call takes."""
        if not len(items):
            return
        with self._errors():
            most = int(self._handle._client.get_max_batch_size())
        size = max(1, min(most, _NUMBERS // max(1, numbers)))
        for first in range(0, len(items), size):
            yield list(items[first : first + size])


def _steady(read: Callable[[], T]) -> T:
    """Read; again if a row came or went just now.

    Chroma keeps vectors apart from all else, and writes one after the other: in between a read of
    both fails, for it misses the row among the vectors, or the first vectors altogether.
    """
    from chromadb.errors import InternalError

    for attempt in range(_TRIES):
        try:
            return read()
        except InternalError as error:
            if not any(words in str(error) for words in _PASSING):
                raise
            time.sleep(_PAUSE * 2**attempt)
    return read()
