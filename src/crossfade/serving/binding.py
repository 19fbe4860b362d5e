"""The store a gateway is bound to: its stage, and searches in threads of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from crossfade.asking import Asking
from crossfade.errors import BadInput, StoreError
from crossfade.journal import Journal, load_journal
from crossfade.search import Searcher
from crossfade.serving.limits import Limits
from crossfade.serving.loaded import Float, Loaded, untouched
from crossfade.serving.refusal import Refusal
from crossfade.stores import Hit, Store

T = TypeVar("T")
# Seconds for which a stage that was read is the stage, and is better than none.
_REFRESH, _STALE = 1.0, 10.0
# Of a look at the store: how long a request waits for it, and when it is long.
_BRIEFLY, _LONG = 0.5, 2.0


@dataclass(frozen=True, eq=False)
class Search:
    """A search as the store is asked it: by which upgrade, in which stage, which way, with what."""

    loaded: Loaded
    journal: Journal | None
    way: Asking
    new: Float | None
    old: Float | None
    kept: dict[str, Any]
    """`k`, `where` and `columns`, as a searcher takes them."""


class Binding:
    """A store, and what was last seen of its migration."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self._known: tuple[Loaded, str | None, Searcher] | None = None
        self._failed = False
        self._begun = 0.0
        self._limits = limits
        self._searching = ThreadPoolExecutor(limits.threads, "search")
        self._watching = ThreadPoolExecutor(1, "stage")
        self._journal: Journal | None = None
        self._seen = -1e9
        self._look: asyncio.Future[Journal | None] | None = None

    def close(self) -> None:
        self._searching.shutdown(wait=True, cancel_futures=True)
        self._watching.shutdown(wait=True, cancel_futures=True)
        self.store.close()

    @property
    def down(self) -> bool:
        """Whether the store did not tell its stage when it was last asked, or is long about it."""
        pending = self._look is not None and not self._look.done()
        return self._failed or (pending and time.monotonic() - self._begun > _LONG)

    async def journal(self, deadline: float) -> Journal | None:
        """What the migration has written down, at most a second old while the store answers."""
        if time.monotonic() - self._seen <= _REFRESH:
            return self._journal
        if self._look is None or self._look.done():
            loop = asyncio.get_running_loop()
            self._look = loop.run_in_executor(self._watching, load_journal, self.store)
            self._begun = time.monotonic()
            self._look.add_done_callback(self._looked)
        usable = time.monotonic() - self._seen < _STALE
        left = deadline - time.monotonic()
        await asyncio.wait({self._look}, timeout=min(left, _BRIEFLY) if usable else max(left, 0))
        if time.monotonic() - self._seen < (_STALE if usable else _REFRESH):
            return self._journal
        if self._look.done():
            # Raises what the store said.
            self._look.result()
        raise Refusal(
            503,
            f"the store {self.store.name} does not answer",
            code="store_unavailable",
            retry_after=1,
        )

    def _looked(self, look: asyncio.Future[Journal | None]) -> None:
        self._failed = look.cancelled() or look.exception() is not None
        if not self._failed:
            self._journal, self._seen = look.result(), time.monotonic()

    def stage(self) -> str | None:
        """The stage that was last seen."""
        return None if self._journal is None else self._journal.stage

    async def planned(self, loaded: Loaded, journal: Journal, deadline: float) -> Asking | None:
        """How the plan says to ask at the share that is filled; None without a plan.

        Only a plan that does not ask in one way throughout needs to know the share.
        """
        asked = loaded.asked or journal.asked
        if len(asked) < 2 or journal.over:
            return asked[0][1] if asked else journal.asking
        return await self._in_thread(
            lambda: self._searcher(loaded, journal).planned(journal, asked), deadline
        )

    async def search(self, search: Search, deadline: float) -> list[Hit]:
        """The best rows, asked one way; in a thread, within what is left of the time."""
        return await self._in_thread(lambda: self._search(search), deadline)

    async def _in_thread(self, work: Callable[[], T], deadline: float) -> T:
        asked = asyncio.get_running_loop().run_in_executor(self._searching, work)
        try:
            return await asyncio.wait_for(asked, max(deadline - time.monotonic(), 0.001))
        except TimeoutError:
            raise Refusal(
                504,
                f"the store {self.store.name} did not answer in {self._limits.seconds:g} s",
                code="timeout",
            ) from None

    def _search(self, search: Search) -> list[Hit]:
        try:
            return self._ask(search)
        except StoreError:
            # Not every store tells a name it does not know from trouble of its own.
            self._check_columns(search.kept["columns"])
            raise

    def _searcher(self, loaded: Loaded, journal: Journal | None) -> Searcher:
        """One that is not behind what an answer says of the stage: a new one looks at once."""
        stage = None if journal is None else journal.stage
        known = self._known
        if known is None or known[:2] != (loaded, stage):
            found = Searcher(self.store, loaded.upgrade, refresh=_REFRESH)
            known = self._known = (loaded, stage, found)
        return known[2]

    def _check_columns(self, columns: list[str]) -> None:
        if not columns:
            return
        found = self.store.describe()
        unknown = sorted(set(columns) - {*found.columns, *found.added, found.id, found.vector})
        if unknown:
            raise BadInput(f"has no column {unknown[0]!r}", where=self.store.name)

    def _ask(self, search: Search) -> list[Hit]:
        way, new, old, kept = search.way, search.new, search.old, search.kept
        if not untouched(search.journal):
            searcher = self._searcher(search.loaded, search.journal)
            return searcher.search(new, old=old, ask=way, **kept)
        if way == "old" and old is not None:
            return self.store.search(old, column=self.store.vector, **kept)
        if way == "new" and new is not None:
            query = search.loaded.query_for_old(new)
            return self.store.search(query, column=self.store.vector, **kept)
        raise BadInput(
            f"asking {way!r} needs a migration, and none is under way",
            where=self.store.name,
            step="run: crossfade migrate start STORE UPGRADE, or ask 'old' or 'new'",
        )
