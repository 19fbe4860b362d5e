"""A real text model in two sizes, and upstreams that serve them.

WordLlama's weights come with its package. Its first numbers are a model by themselves, which is the
old one here.
"""

from __future__ import annotations

import numpy as np
from tests.embedders.server import Server

from crossfade.demo.models import embed_old as wordllama

OLD, NEW = "small", "large"
D, N = 128, 256


def embed_new(texts: list[str]) -> np.ndarray:
    return wordllama(texts)


def embed_old(texts: list[str]) -> np.ndarray:
    cut = wordllama(texts)[:, :D]
    return cut / np.linalg.norm(cut, axis=1, keepdims=True)


class Upstream(Server):
    """Takes a text, texts, or tokens, which are bytes of UTF-8."""

    def embedded(self, asked):
        given = asked["input"]
        if isinstance(given, str) or isinstance(given[0], int):
            given = [given]
        texts = [one if isinstance(one, str) else bytes(one).decode() for one in given]
        answer = super().embedded(asked | {"input": texts})
        if "dimensions" in asked:
            for item in answer["data"]:
                item["embedding"] = item["embedding"][: asked["dimensions"]]
        if self.usage:
            answer["usage"]["prompt_tokens"] = answer["usage"]["total_tokens"]
        return answer
