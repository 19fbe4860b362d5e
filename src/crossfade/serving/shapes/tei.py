"""`POST /embed` as clients of Text Embeddings Inference send it: a list of vectors comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from crossfade.serving.gateway import Embedded
from crossfade.serving.refusal import Refusal
from crossfade.serving.shapes.openai import Request, count_inputs


def read_request(asked: dict[str, Any], most: int, usual: str) -> tuple[Request, bool]:
    """The request, and whether vectors are to be of length one, which they are by default.

    Its own server has one model and names none; here `model` may, and `usual` is it otherwise.

    >>> read_request({"inputs": "a"}, 2048, "new@old")[0].model
    'new@old'
    """
    inputs = asked.get("inputs")
    count = count_inputs(inputs, most, "inputs")
    model = asked.get("model") or usual
    dimensions = asked.get("dimensions")
    if not isinstance(model, str):
        raise Refusal(400, "'model' is no text", param="model")
    if dimensions is not None and not (type(dimensions) is int and dimensions > 0):
        raise Refusal(400, "'dimensions' is a number above 0", param="dimensions")
    request = Request(model, inputs, count, "float", dimensions, {})  # type: ignore[arg-type]
    return request, asked.get("normalize") is not False


def write_answer(found: Embedded, normalize: bool) -> bytes:
    vectors = found.vectors
    if normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY)


def write_refusal(refusal: Refusal) -> Mapping[str, Any]:
    return {
        "error": refusal.message,
        "error_type": "Validation" if refusal.status < 500 else "Backend",
    }
