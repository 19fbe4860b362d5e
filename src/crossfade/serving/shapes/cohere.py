"""`POST /v2/embed` as Cohere's client sends it."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from crossfade.serving.gateway import Embedded
from crossfade.serving.refusal import Refusal
from crossfade.serving.shapes.openai import Request, count_inputs
from crossfade.serving.vectors import in_base64, tokens_of

_TYPES = ("float", "base64")


def read_request(asked: dict[str, Any], most: int) -> tuple[Request, list[str]]:
    """The request, and the types of embeddings that are wanted.

    `input_type` is Cohere's own, and no upstream in OpenAI's shape knows it.

    >>> request, types = read_request({"model": "new", "texts": ["a"]}, 2048)
    >>> request.inputs, types
    (['a'], ['float'])
    """
    model = asked.get("model")
    if not isinstance(model, str):
        raise Refusal(400, "'model' is missing, or no text", param="model")
    if asked.get("images"):
        raise Refusal(400, "images are not embedded here", param="images")
    texts = asked.get("texts")
    if texts is None and asked.get("inputs") is not None:
        texts = [_text_of(one) for one in _listed(asked["inputs"])]
    if not isinstance(texts, list) or set(map(type, texts)) != {str}:
        raise Refusal(400, "'texts' is a list of texts", param="texts")
    count = count_inputs(texts, most, "texts")
    types = asked.get("embedding_types") or ["float"]
    if not isinstance(types, list) or any(one not in _TYPES for one in types):
        raise Refusal(
            400,
            "'embedding_types' are float and base64: other numbers cannot be mapped",
            param="embedding_types",
        )
    dimensions = asked.get("output_dimension")
    if dimensions is not None and not (type(dimensions) is int and dimensions > 0):
        raise Refusal(400, "'output_dimension' is a number above 0", param="output_dimension")
    return Request(model, texts, count, "float", dimensions, {}), types


def _listed(inputs: Any) -> list[Any]:
    if not isinstance(inputs, list):
        raise Refusal(400, "'inputs' is a list", param="inputs")
    return inputs


def _text_of(one: Any) -> str:
    content = one.get("content") if isinstance(one, dict) else None
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if not texts or len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "'inputs' hold something else than texts", param="inputs")
    return "\n".join(map(str, texts))


def write_answer(request: Request, types: list[str], found: Embedded) -> bytes:
    rows: dict[str, Any] = {}
    for kind in types:
        rows[kind] = found.vectors if kind == "float" else list(in_base64(found.vectors))
    answer = {
        "id": secrets.token_hex(16),
        "response_type": "embeddings_by_type",
        "embeddings": rows,
        "texts": request.inputs,
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": tokens_of(found.usage)},
        },
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
