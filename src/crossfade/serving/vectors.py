"""Vectors on their way in and out: JSON numbers, or base64 of little-endian float32."""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

Float = NDArray[np.float32]


class Nonsense(Exception):
    """An answer that is no answer; `whole` if it came complete, so that asking again is in vain."""

    def __init__(self, cause: str, *, whole: bool = True) -> None:
        super().__init__(cause)
        self.whole = whole


@dataclass(frozen=True, eq=False)
class Answer:
    """Vectors (n, dim) in the order of the inputs, and what the model says they took."""

    vectors: Float
    usage: dict[str, Any]
    base64: bool


def read_answer(body: bytes, count: int) -> Answer:
    """The `count` vectors of an answer in OpenAI's shape.

    >>> answer = read_answer(b'{"data": [{"index": 0, "embedding": "AACAPwAAAEA="}]}', 1)
    >>> answer.vectors.tolist(), answer.base64
    ([[1.0, 2.0]], True)
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Nonsense("an answer that is no JSON", whole=False) from None
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise Nonsense("an answer without a list of 'data'")
    if len(data) != count:
        raise Nonsense(f"{len(data)} vectors for {count} inputs")
    if count > 1:
        order = [item.get("index") for item in data]
        # `sorted` would choke on a null among numbers.
        if not all(type(place) is int for place in order) or sorted(order) != list(range(count)):
            raise Nonsense("vectors that are not numbered from 0")
        data.sort(key=lambda item: item["index"])
    rows = [_vector(item.get("embedding")) for item in data]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or 0 in widths:
        raise Nonsense("vectors of several dimensions, or of none")
    vectors = rows[0][None] if count == 1 else np.stack(rows)
    if not np.isfinite(vectors).all():
        raise Nonsense("a vector with a NaN or an infinity")
    usage = found.get("usage")
    packed = isinstance(data[0]["embedding"], str)
    return Answer(vectors, usage if isinstance(usage, dict) else {}, packed)


def _vector(embedding: Any) -> Float:
    with suppress(binascii.Error, ValueError, OverflowError):
        if isinstance(embedding, str):
            return np.frombuffer(pybase64.b64decode(embedding, validate=True), "<f4")
        # numpy would take "1.5" and True for numbers.
        if isinstance(embedding, list) and set(map(type, embedding)) <= {int, float}:
            with np.errstate(over="ignore"):
                return np.array(embedding, np.float64).astype(np.float32)
    raise Nonsense("a vector that is neither a list of numbers nor base64 of float32")


def read_vector(given: Any) -> Float | None:
    """A vector that a client sent; None if that is none.

    >>> read_vector([1, 2.5]).tolist(), read_vector(["1"])
    ([1.0, 2.5], None)
    """
    try:
        found = _vector(given)
    except Nonsense:
        return None
    return found if found.size and np.isfinite(found).all() else None


def in_base64(rows: Float) -> Iterable[str]:
    """Each row as OpenAI's clients read it.

    >>> list(in_base64(np.array([[1, 2]], "f4")))
    ['AACAPwAAAEA=']
    """
    packed = np.ascontiguousarray(rows, "<f4")
    return (pybase64.b64encode_as_string(row.data) for row in packed)


def tokens_of(usage: dict[str, Any]) -> int:
    """The larger of two counts that should be one: an endpoint may leave either at 0.

    >>> tokens_of({"prompt_tokens": 7, "total_tokens": 0})
    7
    """
    said = [usage.get(f"{of}_tokens") for of in ("total", "prompt")]
    return max((n for n in said if type(n) is int and 0 <= n < 2**53), default=0)
