"""What an OpenAI-compatible endpoint answers, as vectors in the order of the request."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.embedders.contract import Id, Vectors
from crossfade.errors import EmbedderError, shortened

_STEP = "check that the address and the model are those of an OpenAI-compatible endpoint"


class Unreadable(Exception):
    """The body is no JSON object: half of one, or a proxy's error page. Asking again may help."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Vectors (n, dim), and the tokens they took if the endpoint said so."""

    vectors: Vectors
    tokens: float | None


def read_answer(body: bytes, ids: Sequence[Id], where: str) -> Answer:
    """The vectors of `ids`, put in their order by the `index` of each.

    >>> body = b'{"data": [{"index": 1, "embedding": [2]}, {"index": 0, "embedding": [1]}]}'
    >>> read_answer(body, ["a", "b"], "https://example.com").vectors.tolist()
    [[1.0], [2.0]]
    """
    # A seventh of the time of `json`, which is most of what an answer costs.
    from pydantic_core import from_json

    try:
        found = from_json(body)
    except ValueError as error:
        raise Unreadable(f"an answer that is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise Unreadable("an answer that is no JSON object")
    data = found.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise EmbedderError("answered without a list of 'data'", where=where, step=_STEP)
    order = [item.get("index") for item in data]
    # What the server wrote is not quoted here or below: it could be anything, the key included.
    numbered = all(type(place) is int for place in order)
    if not numbered or sorted(order) != list(range(len(ids))):
        raise EmbedderError(
            f"answered with {len(order)} vectors, "
            f"{'' if len(order) != len(ids) else 'but not numbered from 0, '}"
            f"for {len(ids)} items, the first of them {shortened(ids[0])}",
            where=where,
            step=_STEP,
        )
    rows: list[Any] = [None] * len(ids)
    for place, item in zip(order, data, strict=True):
        rows[place] = _vector(item.get("embedding"), ids[place], where)
    for row, one in zip(rows, ids, strict=True):
        if len(row) != len(rows[0]):
            raise EmbedderError(
                f"the vector of item {shortened(one)} has {len(row)} dimensions where that of "
                f"{shortened(ids[0])} has {len(rows[0])}",
                where=where,
                step=_STEP,
            )
    return Answer(np.stack(rows), _tokens(found.get("usage")))


def _vector(embedding: Any, one: Id, where: str) -> NDArray[np.float32]:
    with suppress(binascii.Error, ValueError, OverflowError):
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype("f4")
        # numpy would take "1.5" and True for numbers, and a null for a NaN.
        if isinstance(embedding, list) and set(map(type, embedding)) <= {int, float}:
            with np.errstate(over="ignore"):
                return np.array(embedding, np.float64).astype(np.float32)
    raise EmbedderError(
        f"the vector of item {shortened(one)} is neither a list of numbers nor base64 of float32",
        where=where,
        step=_STEP,
    )


def _tokens(usage: Any) -> float | None:
    """The larger of two counts that should be one: an endpoint may leave either at 0."""
    said: list[Any] = []
    if isinstance(usage, dict):
        said = [usage.get(f"{of}_tokens") for of in ("total", "prompt")]
    counts = [float(n) for n in said if type(n) in (int, float) and 0 <= n < 2**53]
    return max(counts, default=None)
