"""A PostgreSQL table that was lifted, an endpoint that counts, and workers that are processes."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.embedders.server import Server
from tests.migration.conftest import (
    Models,
    models,  # noqa: F401
    plan_folder,  # noqa: F401
    texts_of,
    upgrade_folder,  # noqa: F401
)
from tests.stores.apps import PostgresApp
from tests.workers.working import work

from crossfade.migration import Migration

ROWS = 600


class Counting(Server):
    """Answers with the new model's vectors, each request after a while."""

    def __init__(self, of: Models, seconds: float = 0.0) -> None:
        super().__init__(of.new)
        self.seconds = seconds

    def embedded(self, asked):
        time.sleep(self.seconds)
        return super().embedded(asked)

    def send(self, handler, answer, *args, **kwargs):
        # Whoever asked may have been killed.
        with contextlib.suppress(OSError):
            super().send(handler, answer, *args, **kwargs)

    @property
    def texts(self) -> Counter:
        return Counter(text for asked in self.requests for text in asked["input"])


class Table:
    """A table of `ROWS` texts that are all different."""

    def __init__(self, folder: Path, both: Models, upgrade: Path) -> None:
        self.app, self.models, self.upgrade = PostgresApp(folder), both, upgrade
        self.texts = [f"{text} {n}" for n, text in enumerate(texts_of(ROWS))]
        kinds = [ord(text[0]) for text in self.texts]
        self.app.create(list(range(ROWS)), self.texts, kinds, both.old(self.texts))

    def migration(self) -> Migration:
        return Migration(self.app.address, self.upgrade)

    def forward(self) -> None:
        with contextlib.closing(self.migration()) as migration:
            migration.start(source="body", force=True)
            migration.forward()

    def work(self, url: str, name: str, **wanted: Any) -> Any:
        """Fill as one worker, in this process."""
        return work(self.app.address, str(self.upgrade), url, name, **wanted)


@pytest.fixture
def table(tmp_path, models, upgrade_folder):  # noqa: F811
    made = Table(tmp_path, models, upgrade_folder)
    made.forward()
    return made


@pytest.fixture
def endpoint(models):  # noqa: F811
    server = Counting(models)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def migration(table):
    with contextlib.closing(table.migration()) as made:
        yield made


def eventually(true, seconds: float = 20.0) -> None:
    """Wait until something is the case."""
    begin = time.monotonic()
    while not true():
        assert time.monotonic() - begin < seconds
        time.sleep(0.05)


def filled(migration: Migration) -> dict[int, np.ndarray]:
    """The shared vectors of the rows that are filled."""
    from tests.migration.conftest import shared_of

    return {key: v for key, (state, v) in shared_of(migration).items() if state == "filled"}
