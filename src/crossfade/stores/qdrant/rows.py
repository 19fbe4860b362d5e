"""Points of Qdrant as rows of the contract: ids, columns, tokens, filters."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.sketch import row_hashes
from crossfade.stores.contract import Id, Where
from crossfade.stores.names import PREFIX, Range, check_name, check_where

UNNAMED = ""
_COLLECTION = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")


def check_collection(name: str) -> str:
    """A collection's name, which is also a piece of an address.

    >>> check_collection("items-2024")
    'items-2024'
    """
    if not _COLLECTION.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name for a collection", step="use letters, digits, '_', '-' and '.'"
        )
    return name


def point_id(key: Id) -> Id | None:
    """An id as Qdrant writes it, or None if no point can have it.

    >>> point_id(7), point_id("a")
    (7, None)
    >>> point_id("5C56C793-69F3-4FBF-87E6-C4BF54C28C26")
    '5c56c793-69f3-4fbf-87e6-c4bf54c28c26'
    """
    if isinstance(key, str):
        try:
            return str(uuid.UUID(key))
        except ValueError:
            return None
    return key if key >= 0 else None


def vector_of(record: Any, name: str) -> list[float] | None:
    """One vector of a point; without a name if it is the only one."""
    if isinstance(record.vector, dict):
        found: list[float] | None = record.vector.get(name)
        return found
    return record.vector if name == UNNAMED else None


def values_of(records: Sequence[Any], name: str, kind: pa.DataType | None, where: str) -> pa.Array:
    """One payload field; null where a point has it not."""
    values = [(record.payload or {}).get(name) for record in records]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError):
        raise BadInput(
            f"{name!r} holds values of several kinds", where=where, step="leave this field out"
        ) from None


@dataclass(frozen=True, eq=False)
class Numbers:
    """One vector of points as (points, dim), zeros where a point has none."""

    rows: NDArray[np.float64]
    there: NDArray[np.bool_]

    @classmethod
    def of(cls, records: Sequence[Any], name: str, dim: int) -> Numbers:
        found = [vector_of(record, name) for record in records]
        whole = [one for one in found if one is not None and len(one) == dim]
        there = np.array([one is not None and len(one) == dim for one in found], bool)
        rows = np.zeros((len(found), dim))
        if whole:
            rows[there] = whole
        return cls(rows, there)

    def column(self, *, unit: bool) -> pa.Array:
        """As lists of float32, at length one if so wanted: under cosine a server keeps them so;
        local mode does too, but only from the first search on."""
        rows = _scaled(self.rows) if unit else self.rows
        return pa.FixedSizeListArray.from_arrays(
            pa.array(rows.astype(np.float32).reshape(-1)),
            self.rows.shape[1],
            mask=pa.array(~self.there),
        )


def _scaled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """At length one; zeros stay zeros.

    >>> _scaled(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.vecdot(rows, rows))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0)[:, None])


def tokens(records: Sequence[Any], old: Numbers) -> pa.Array:
    """63 bits of a point's old vector and of the application's payload."""
    payloads = np.zeros(len(records), np.uint64)
    for at, (record, there) in enumerate(zip(records, old.there.tolist(), strict=True)):
        own = {k: v for k, v in (record.payload or {}).items() if not k.startswith(PREFIX)}
        text = json.dumps([not there, own], sort_keys=True).encode()
        payloads[at] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    hashed = row_hashes(old.rows.astype(np.float32))
    return pa.array(((hashed ^ payloads) >> np.uint64(1)).astype(np.int64))


def condition(where: Where | None, has: Callable[[str], bool], models: Any) -> list[Any]:
    """A filter as conditions of Qdrant; `has` says whether any point has a field, `models` what
    conditions are made of."""
    names = tuple(name for name in where or {} if has(check_name(name, "field")))
    out: list[Any] = []
    for name, values in check_where(where, names).items():
        if isinstance(values, Range):
            kept = models.Range(gte=values.least, lte=values.most)
            out.append(models.FieldCondition(key=name, range=kept))
            continue
        each: list[Any] = [
            models.FieldCondition(key=name, **_equal(value, models)) for value in values
        ]
        nothing = models.HasIdCondition(has_id=[])
        out.append(models.Filter(should=each) if each else nothing)
    return out


def _equal(value: Any, models: Any) -> dict[str, Any]:
    if isinstance(value, float):
        return {"range": models.Range(gte=value, lte=value)}
    return {"match": models.MatchValue(value=value)}
