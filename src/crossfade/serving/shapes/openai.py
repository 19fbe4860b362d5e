"""`POST /v1/embeddings` as OpenAI's clients send it, and Voyage's, which differs little."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from crossfade.serving.gateway import Embedded
from crossfade.serving.refusal import Refusal
from crossfade.serving.upstream import Inputs
from crossfade.serving.vectors import in_base64

_LONGEST = 1 << 16
_TOKENS = range(1 << 32)
_OURS = frozenset(
    (
        "model",
        "input",
        "encoding_format",
        "dimensions",
        "output_dimension",
        "output_dtype",
        "truncation",
    )
)


@dataclass(frozen=True, eq=False)
class Request:
    """What is to be embedded, by which model, and how it is to be written."""

    model: str
    inputs: Inputs
    count: int
    encoding: Literal["float", "base64"]
    dimensions: int | None
    more: dict[str, Any]
    """What else the client says, for the upstream to judge."""


def read_request(asked: dict[str, Any], most: int) -> Request:
    """
    >>> read_request({"model": "new", "input": ["a", "b"], "user": "me"}, 2048).more
    {'user': 'me'}
    """
    model = asked.get("model")
    if not isinstance(model, str):
        raise Refusal(400, "'model' is missing, or no text", param="model")
    inputs = asked.get("input")
    count = count_inputs(inputs, most)
    encoding = asked.get("encoding_format")
    if encoding not in (None, "float", "base64"):
        raise Refusal(400, "'encoding_format' is float or base64", param="encoding_format")
    if asked.get("output_dtype") not in (None, "float"):
        raise Refusal(
            400, "'output_dtype' is float: other numbers cannot be mapped", param="output_dtype"
        )
    # Voyage's word for the same.
    wanted = [asked.get(word) for word in ("dimensions", "output_dimension")]
    dimensions = wanted[0] if wanted[0] is not None else wanted[1]
    if dimensions is not None and not (type(dimensions) is int and 0 < dimensions <= _LONGEST):
        raise Refusal(400, "'dimensions' is a number above 0", param="dimensions")
    more = {k: v for k, v in asked.items() if v is not None and k not in _OURS}
    if asked.get("truncation") is False:
        # Voyage's client always says true, which is what others do anyway, and do not know.
        more["truncation"] = False
    return Request(model, inputs, count, encoding or "float", dimensions, more)  # type: ignore[arg-type]


def count_inputs(inputs: Any, most: int, param: str = "input") -> int:
    """How many there are to embed: a text, texts, an array of tokens, or several.

    >>> count_inputs("a", 8), count_inputs(["a", "b"], 8), count_inputs([[1, 2], [3]], 8)
    (1, 2, 2)
    """
    if isinstance(inputs, str):
        return 1
    if not isinstance(inputs, list) or not inputs:
        raise Refusal(
            400, f"'{param}' is a text, a list of texts, or arrays of tokens", param=param
        )
    kinds = set(map(type, inputs))
    if kinds == {int}:
        _check_tokens([inputs], param)
        return 1
    if len(inputs) > most:
        raise Refusal(
            400, f"'{param}' has {len(inputs)} inputs, and {most} are allowed", param=param
        )
    if kinds == {list}:
        _check_tokens(inputs, param)
    elif kinds != {str}:
        raise Refusal(
            400, f"'{param}' is a text, a list of texts, or arrays of tokens", param=param
        )
    return len(inputs)


def _check_tokens(arrays: list[list[Any]], param: str) -> None:
    for array in arrays:
        good = 0 < len(array) <= _LONGEST and set(map(type, array)) == {int}
        if not good or min(array) not in _TOKENS or max(array) not in _TOKENS:
            raise Refusal(400, f"'{param}' has an array that is not of tokens", param=param)


def write_answer(request: Request, found: Embedded) -> bytes:
    """The vectors, encoded as the client asked for."""
    rows: Iterable[Any] = found.vectors
    if request.encoding == "base64":
        rows = in_base64(found.vectors)
    answer = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": place, "embedding": row}
            for place, row in enumerate(rows)
        ],
        "model": request.model,
        "usage": found.usage or {"prompt_tokens": 0, "total_tokens": 0},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def list_models(names: Iterable[str]) -> bytes:
    """`GET /v1/models`."""
    return orjson.dumps({"object": "list", "data": [describe_model(name) for name in names]})


def describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(_BEGUN), "owned_by": "crossfade"}


_BEGUN = time.time()
