"""What a worker does that is a process of its own.

Processes are forked off a server that has imported everything and started nothing, so that no
thread of the test is in the middle of anything.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import closing
from typing import Any

from crossfade.embedders import EndpointSettings, open_embedder
from crossfade.migration import Migration
from crossfade.migration.backfill import Filled
from crossfade.migration.preparation import Wanted
from crossfade.migration.together import fill_together

MODEL = EndpointSettings(model="fine", batch_size=8, concurrency=1, first_wait=0.01)
_spawning = multiprocessing.get_context("forkserver")
_spawning.set_forkserver_preload(
    ["tests.workers.working", "psycopg", "aiohttp", "crossfade.stores.postgres.store"]
)


def work(
    place: str,
    upgrade: str,
    url: str,
    name: str,
    *,
    seconds: float = 2.0,
    settings: EndpointSettings = MODEL,
    **wanted: Any,
) -> Filled:
    """Fill as one worker, until there is no more to do."""
    with closing(Migration(place, upgrade)) as migration:
        embedder = open_embedder(url, endpoint=settings)
        try:
            return fill_together(
                migration.store,
                migration.upgrade,
                embedder,
                Wanted(**({"share": 1.0, "batch": 16} | wanted)),
                name,
                seconds=seconds,
            )
        finally:
            embedder.close()


class Process:
    """A worker that is a process of its own."""

    def __init__(self, table: Any, url: str, name: str, **wanted: Any) -> None:
        place = (table.app.address, str(table.upgrade), url, name)
        self._process = _spawning.Process(target=work, args=place, kwargs=wanted, daemon=True)
        self._process.start()

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int | None:
        """Its exit status; the negative of a signal, and none if it does not end."""
        self._process.join(60)
        return self._process.exitcode
