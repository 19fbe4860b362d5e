"""Looking at a migration now and then, once for everybody who watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crossfade.backfill.plan import PLAN, Plan
from crossfade.backfill.record import PlanRecord
from crossfade.errors import BadInput, CrossfadeError
from crossfade.journal.journal import load_journal
from crossfade.migration.status import Status, read_status
from crossfade.serving.dashboard.state import live_panels, migration_state, unstarted_state
from crossfade.stores import Store

TICK_SECONDS = 1.0
"""How often what a gateway counts is looked at, and the store at most."""
BEAT_SECONDS = 5.0
"""How long a page is left without a word."""
_SHARE = 0.05
"""Of the time, at most, that is spent on asking the store."""
_LONGEST_PAUSE = 60.0
_WINDOW = 60.0
"""Seconds over which the present rate is taken."""


class Watch:
    """What a page shows of a store: its migration, the plan's curve, and what a gateway counts.

    The store is asked by one task for all pages, in a thread, only while somebody looks, and for no
    more than a twentieth of the time. An error of the store is shown, and the next look may be
    better. `live` gives what a gateway counts; `plan` the plan's folder, where the journal does not
    know it yet.

    >>> import lance, pyarrow as pa, tempfile
    >>> from crossfade.stores import open_store
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"id": [7], "vector": vectors}), path)
    >>> Watch(open_store(path)).look()["headline"]
    'No migration was started'
    """

    def __init__(
        self,
        store: Store,
        plan: Path | None = None,
        *,
        live: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._store, self._given, self._live = store, plan, live
        self._plan: tuple[Path, float, PlanRecord] | None = None
        self._moved: deque[tuple[float, str, int]] = deque()
        self._found: dict[str, Any] = {}
        self._error: str | None = None
        self._at, self._due = "", 0.0
        self._text: str | None = None
        self._bells: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def look(self) -> dict[str, Any]:
        """One look at the store, which takes as long as it takes."""
        journal = load_journal(self._store)
        if journal is None:
            return unstarted_state(self._store.name)
        found = read_status(self._store, journal)
        plan = None
        if journal.backfill is not None:
            plan = self._read_plan(Path(journal.backfill.plan_folder), found)
        if plan is None and self._given is not None:
            plan = self._read_plan(self._given, found)
        return migration_state(found, plan, self._rate(found))

    def _read_plan(self, folder: Path, found: Status) -> tuple[PlanRecord, Path] | None:
        """The plan, read again when it has changed; None if it is gone, or another upgrade's."""
        try:
            changed = (folder / PLAN).stat().st_mtime
            if self._plan is None or self._plan[:2] != (folder, changed):
                self._plan = folder, changed, Plan.load(folder).record
        except (OSError, BadInput):
            # A plan's folder may be moved at any time: a page is still a page.
            return None
        record = self._plan[2]
        return (record, folder) if record.upgrade == found.upgrade else None

    def _rate(self, found: Status) -> float | None:
        """Rows a second over the last looks; None while nothing moves."""
        now, lifting = time.monotonic(), found.lifting
        done = found.lifted + found.filled if lifting else found.filled
        # What is written down is written when a step begins or ends.
        phase = f"{found.stage} {found.events[-1:]}"
        if self._moved and (self._moved[-1][1] != phase or self._moved[-1][2] > done):
            self._moved.clear()
        self._moved.append((now, phase, done))
        while len(self._moved) > 2 and self._moved[1][0] < now - _WINDOW:
            self._moved.popleft()
        begin, _, before = self._moved[0]
        return (done - before) / (now - begin) if done > before else None

    async def state(self) -> dict[str, Any]:
        """What a page shows now; the store is asked if that is due."""
        async with self._looking:
            if time.monotonic() >= self._due:
                await self._look()
        live = None if self._live is None else self._live()
        panels = self._found.get("panels", {}) | live_panels(live, self._found.get("spent", 0.0))
        return self._found | {"error": self._error, "panels": panels}

    async def _look(self) -> None:
        begin = time.monotonic()
        try:
            self._found = await asyncio.to_thread(self.look)
            self._error = None
        except CrossfadeError as error:
            self._error = str(error)
            self._found = self._found or {"store": self._store.name}
        took = time.monotonic() - begin
        self._at = datetime.now(UTC).isoformat(timespec="seconds")
        pause = min(_LONGEST_PAUSE, max(TICK_SECONDS, took / _SHARE))
        self._due = begin + took + pause - TICK_SECONDS / 2

    async def follow(self) -> AsyncIterator[tuple[str, str]]:
        """Names and data of events: `state` whenever it is another one, else `beat`."""
        bell = asyncio.Event()
        self._bells.add(bell)
        self._loop = asyncio.get_running_loop()
        sent = None
        try:
            while not self._closed:
                task = self._running()
                if self._text is not None and self._text != sent:
                    sent = self._text
                    yield "state", sent
                try:
                    await asyncio.wait_for(bell.wait(), BEAT_SECONDS)
                except TimeoutError:
                    yield "beat", json.dumps({"at": self._at})
                bell.clear()
                if task.done():
                    # What ended it, if it was no client's leaving, ends this too; pages come again.
                    task.result()
        finally:
            self._bells.discard(bell)

    def close(self) -> None:
        """End all pages' streams, so that a server can; from any thread or signal handler."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _running(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        return self._task

    async def _poll(self) -> None:
        try:
            while self._bells and not self._closed:
                text = json.dumps(await self.state(), allow_nan=False)
                if text != self._text:
                    self._text = text
                    self._ring()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()
