"""`POST /v1/search`: a text or vectors in, rows of the store out."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from crossfade.serving.gateway import Found, Query
from crossfade.serving.refusal import Refusal
from crossfade.serving.vectors import read_vector
from crossfade.stores import Range

_WORDS = ("query", "new", "old", "k", "where", "columns", "ask")
_MOST_COLUMNS = 100


def read_request(asked: dict[str, Any], most: int) -> Query:
    """
    >>> read_request({"query": "a shoe", "where": {"year": {"least": 2020}}}, 1000).kept["where"]
    {'year': Range(least=2020, most=None)}
    """
    unknown = [word for word in asked if word not in _WORDS]
    if unknown:
        raise Refusal(400, f"there is no {unknown[0][:80]!r} in a search", param=unknown[0][:80])
    text, k, ask = asked.get("query"), asked.get("k"), asked.get("ask")
    if text is not None and not isinstance(text, str):
        raise Refusal(400, "'query' is a text", param="query")
    k = 10 if k is None else k
    if type(k) is not int or not 1 <= k <= most:
        raise Refusal(400, f"'k' is a number from 1 to {most}", param="k")
    vectors = {}
    for side in ("new", "old"):
        given = asked.get(side)
        vectors[side] = None if given is None else read_vector(given)
        if given is not None and vectors[side] is None:
            raise Refusal(
                400, f"{side!r} is a list of finite numbers, or base64 of float32", param=side
            )
    if text is None and not any(vector is not None for vector in vectors.values()):
        raise Refusal(400, "there is no query → pass 'query', 'new' or 'old'", param="query")
    if ask is not None and not isinstance(ask, str):
        raise Refusal(400, "'ask' is a text", param="ask")
    columns = asked.get("columns") or []
    good = isinstance(columns, list) and len(columns) <= _MOST_COLUMNS
    if not good or not all(isinstance(column, str) for column in columns):
        raise Refusal(400, "'columns' is a list of names", param="columns")
    kept = {"k": k, "where": _where(asked.get("where")), "columns": columns}
    return Query(text, vectors["new"], vectors["old"], ask, kept)  # type: ignore[arg-type]


def _where(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Refusal(400, "'where' says what columns hold: {\"topic\": 3}", param="where")
    return {column: _range(value) for column, value in given.items()}


def _range(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if not value or not set(value) <= {"least", "most"}:
        raise Refusal(400, "a range has 'least', 'most' or both", param="where")
    return Range(**value)


def write_answer(found: Found) -> bytes:
    answer = {
        "object": "list",
        "data": [{"id": hit.id, "score": hit.score, "values": hit.values} for hit in found.hits],
        "ask": found.way,
        "stage": found.stage,
        "usage": found.usage,
    }
    return orjson.dumps(answer, default=_plainly, option=orjson.OPT_SERIALIZE_NUMPY)


def _plainly(value: Any) -> Any:
    """What a store keeps and JSON does not know."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return dict(value) if hasattr(value, "keys") else str(value)
