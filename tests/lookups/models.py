"""Two little models that read words, the old one coarsely, and texts for them."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np

D, N = 12, 24
_VIEWS = [np.random.default_rng(side).normal(size=(32, dim)) for side, dim in ((5, D), (6, N))]


def old(texts: list[str]) -> np.ndarray:
    # Coarse: what it reads is rounded.
    return (np.round(_seen(texts) * 3) / 3 @ _VIEWS[0] + 0.5).astype(np.float32)


def new(texts: list[str]) -> np.ndarray:
    return (_seen(texts) @ _VIEWS[1] - 0.5).astype(np.float32)


def other(texts: list[str]) -> np.ndarray:
    """A model that never filled the store, though it has the old one's dimension."""
    return new(["other " + text[::-1] for text in texts])[:, :D]


def _seen(texts: list[str]) -> np.ndarray:
    out = np.zeros((len(texts), 32))
    for row, text in zip(out, texts, strict=True):
        words = text.lower().replace(".", " ").split()
        for word in words:
            row += _word(word)
        row /= max(1, len(words)) ** 0.5
    return out


@cache
def _word(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=32)


def texts_of(rows: int, seed: int = 0) -> list[str]:
    """Two sentences of words of their own, half of them from a subject."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(rows):
        subject = rng.integers(20)
        words = [f"s{subject}x{rng.integers(30)}" for _ in range(6)]
        words += [f"w{rng.integers(400)}" for _ in range(8)]
        rng.shuffle(words)
        made.append(f"{' '.join(words[:6])}. {' '.join(words[6:])}.")
    return made
