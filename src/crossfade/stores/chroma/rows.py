"""Rows of Chroma as rows of the contract: columns, tokens, filters, names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files.arrow import to_arrow
from crossfade.sketch import row_hashes
from crossfade.stores.names import PREFIX, Range

ID, VECTOR, DOCUMENT, URI = "id", "embedding", "document", "uri"
OWN = (ID, VECTOR, DOCUMENT, URI)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]")
# Older servers take names of 63 characters.
_LONGEST = 63


def check_collection(name: str) -> str:
    """A collection's name, as Chroma wants them.

    >>> check_collection("items-2024")
    'items-2024'
    """
    if not _NAME.fullmatch(name) or name.startswith(PREFIX):
        raise BadInput(
            f"{name!r} is no name for a collection",
            step="use 3 letters or more, digits, '_', '-' and '.'",
        )
    return name


def beside(what: str, collection: str) -> str:
    """The name of a collection of ours next to the application's.

    >>> beside("shared", "items")
    'crossfade_shared_items'
    """
    name = f"{PREFIX}{what}_{collection}"
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.blake2b(collection.encode(), digest_size=8).hexdigest()
    return f"{PREFIX}{what}_{collection[:20]}_{digest}"


@dataclass(frozen=True, eq=False)
class Records:
    """Rows as Chroma gives them; `vectors` is (rows, d), with d = 0 where they were not read."""

    ids: list[str]
    vectors: NDArray[np.float32]
    documents: list[str | None]
    metadatas: list[dict[str, Any]]
    uris: list[str | None]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Records:
        ids = list(found["ids"])
        vectors = found.get("embeddings")
        nothing = np.zeros((len(ids), 0), np.float32)
        return cls(
            ids,
            nothing if vectors is None or not ids else np.asarray(vectors, np.float32),
            list(found.get("documents") or [None] * len(ids)),
            [dict(one or {}) for one in found.get("metadatas") or [None] * len(ids)],
            list(found.get("uris") or [None] * len(ids)),
        )

    @classmethod
    def made(
        cls, ids: Sequence[str], vectors: NDArray[np.float32], metadatas: list[dict[str, Any]]
    ) -> Records:
        """Rows without documents."""
        return cls(list(ids), vectors, [None] * len(ids), metadatas, [None] * len(ids))

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        some = [part for part in parts if len(part)]
        if not some:
            return cls([], np.zeros((0, 0), np.float32), [], [], [])
        return cls(
            [x for part in some for x in part.ids],
            np.vstack([part.vectors for part in some]),
            [x for part in some for x in part.documents],
            [x for part in some for x in part.metadatas],
            [x for part in some for x in part.uris],
        )

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, at: Sequence[int]) -> Records:
        """Some of the rows."""
        return Records(
            [self.ids[i] for i in at],
            self.vectors[list(at)],
            [self.documents[i] for i in at],
            [self.metadatas[i] for i in at],
            [self.uris[i] for i in at],
        )

    def ordered(self, ids: Sequence[str]) -> Records:
        """In the order of `ids`; those that are not there are left out."""
        row_of = {key: at for at, key in enumerate(self.ids)}
        return self.take([row_of[key] for key in dict.fromkeys(ids) if key in row_of])

    def own(self, at: int) -> dict[str, Any]:
        """The application's metadata of a row."""
        return {k: v for k, v in self.metadatas[at].items() if not k.startswith(PREFIX)}

    def contents(self) -> NDArray[np.uint64]:
        """64 bits of each row's document, address and the application's metadata."""
        out = np.zeros(len(self), np.uint64)
        for at in range(len(self)):
            told = [self.documents[at], self.uris[at], self.own(at)]
            text = json.dumps(told, sort_keys=True, default=str).encode()
            out[at] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        return out

    def tokens(self) -> NDArray[np.int64]:
        """63 bits of each row's vector and of all that the application keeps with it."""
        return ((row_hashes(self.vectors) ^ self.contents()) >> np.uint64(1)).astype(np.int64)

    def column(self, name: str, kind: pa.DataType | None, where: str) -> pa.Array:
        """A column of the application, or metadata of ours; null where a row has it not."""
        if name == ID:
            return pa.array(self.ids, pa.string())
        if name == VECTOR:
            if not len(self):
                return pa.array([], kind)
            return to_arrow(self.vectors)
        if name in (DOCUMENT, URI):
            return pa.array(self.documents if name == DOCUMENT else self.uris, pa.string())
        try:
            return pa.array([meta.get(name) for meta in self.metadatas], kind)
        except (pa.ArrowException, TypeError, ValueError):
            raise BadInput(
                f"{name!r} holds values of several kinds", where=where, step="leave this field out"
            ) from None


def condition(kept: Mapping[str, list[Any] | Range]) -> Any:
    """A checked filter as Chroma's; None if it keeps all, False if it can keep nothing."""
    each: list[Any] = []
    for name, values in kept.items():
        if isinstance(values, Range):
            signs = {">=": "$gte", "<=": "$lte"}
            each += [{name: {signs[sign]: end}} for sign, end in values.ends]
            continue
        # Chroma wants the values of one list to be of one kind.
        kinds: dict[type, list[Any]] = {}
        for value in values:
            kinds.setdefault(type(value), []).append(value)
        some: list[Any] = [{name: {"$in": of_kind}} for of_kind in kinds.values()]
        if not some:
            return False
        each.append({"$or": some} if len(some) > 1 else some[0])
    if not each:
        return None
    return {"$and": each} if len(each) > 1 else each[0]
