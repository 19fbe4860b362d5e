"""A real little model in a module of its own, as a user's is: workers import it by its name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

D, N = 12, 16
_RNG = np.random.default_rng(1)
_SEEN = _RNG.normal(size=(128, 10))
_VIEWS = [_RNG.normal(size=(10, dim)) for dim in (D, N)]
_MEANS = [2 * _RNG.normal(size=dim) for dim in (D, N)]
# So that a test can tell how often the model was loaded, and in which processes.
if "CROSSFADE_TEST_LOADED" in os.environ:
    with Path(os.environ["CROSSFADE_TEST_LOADED"]).open("a") as _file:
        _file.write(f"{os.getpid()}\n")


def _made(texts: list[str], side: int) -> np.ndarray:
    counts = np.array([np.bincount(list(t.encode()), minlength=128)[:128] for t in texts])
    features = np.tanh(counts @ _SEEN / 3)
    if side == 0:
        features = np.round(features * 2) / 2
    return (features @ _VIEWS[side] + _MEANS[side]).astype(np.float32)


def old(texts: list[str]) -> np.ndarray:
    return _made(texts, 0)


def new(texts: list[str]) -> np.ndarray:
    return _made(texts, 1)


def slow(texts: list[str]) -> np.ndarray:
    """The same at a pace that leaves time to kill something meanwhile."""
    time.sleep(0.25)
    return _made(texts, 1)


def texts_of(rows: int, seed: int = 0) -> list[str]:
    letters = list("abcdefghijklmnopqrstuvwxyz")
    return ["".join(row) for row in np.random.default_rng(seed).choice(letters, size=(rows, 14))]
