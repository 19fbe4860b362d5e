"""Small pairs of two made-up models that see the same items."""

from __future__ import annotations

import os

# Matrices this small gain nothing from threads, and on a busy machine threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings

# Shared machines pause for longer than any sensible deadline.
settings.register_profile("crossfade", deadline=None, max_examples=40)
settings.load_profile("crossfade")


# A shell's background jobs ignore Ctrl-C, and so would every command that tests start and stop.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish() -> None:
    from tests.stores.postgres import stop

    stop()


@pytest.fixture(autouse=True)
def forgotten_modules(monkeypatch, tmp_path_factory):
    """Modules that a test wrote into its folder are unknown to the next, which may use the name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(folder):
            del sys.modules[name]


class Made(NamedTuple):
    old: np.ndarray
    new: np.ndarray
    labels: np.ndarray


@pytest.fixture(scope="session")
def made() -> Callable[..., Made]:
    """Makes items in classes, seen by an old and a new model, each with a mean of its own."""

    def make(
        rows: int = 120, d: int = 6, n: int = 8, classes: int = 6, noise: float = 0.4, seed: int = 0
    ) -> Made:
        rng = np.random.default_rng(seed)
        labels = np.arange(rows) % classes
        items = rng.normal(size=(classes, 5))[labels] + noise * rng.normal(size=(rows, 5))
        old = items @ rng.normal(size=(5, d)) + 0.6 * noise * rng.normal(size=(rows, d))
        new = items @ rng.normal(size=(5, n)) + 0.3 * noise * rng.normal(size=(rows, n))
        old += 4 * rng.normal(size=d)
        new += 4 * rng.normal(size=n)
        return Made(old.astype(np.float32), new.astype(np.float32), labels)

    return make


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def crossfade(monkeypatch, capsys) -> Callable[..., Ran]:
    """Runs the command line as its entry point does: `crossfade("fit", "pairs.npz")`."""
    from crossfade.cli import main

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["crossfade", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run
