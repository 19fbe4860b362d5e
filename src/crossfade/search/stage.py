"""The stage of a store's migration, as it was not long ago: what every question begins with."""

from __future__ import annotations

import time

from crossfade.errors import BadInput
from crossfade.journal.journal import Journal, need_journal
from crossfade.journal.opening import check_opened
from crossfade.stores import Store
from crossfade.upgrade import Upgrade


class Stage:
    """Reads the journal of a store again once it is older than `refresh` seconds.

    A journal of another upgrade is refused: its columns mean something else.
    """

    def __init__(self, store: Store, upgrade: Upgrade, refresh: float = 1.0) -> None:
        self.store, self.upgrade, self.refresh = store, upgrade, refresh
        self._journal: Journal | None = None
        self._seen = -1e9

    def journal(self) -> Journal:
        """The journal, at most `refresh` seconds old."""
        now = time.monotonic()
        if self._journal is None or now - self._seen > self.refresh:
            journal = need_journal(self.store)
            if journal.upgrade != self.upgrade.hash_:
                raise BadInput(
                    f"is migrated with upgrade {journal.upgrade[:12]}, "
                    f"and this one is {self.upgrade.hash_[:12]}",
                    where=self.store.name,
                    step="load the upgrade named by: crossfade migrate status",
                )
            check_opened(journal, self.store)
            self._journal, self._seen = journal, now
        return self._journal

    def moved_on(self) -> bool:
        """Look at once, and say whether the stage is another than the one known so far."""
        before = self._journal
        self._seen = -1e9
        return before is None or self.journal().stage != before.stage
