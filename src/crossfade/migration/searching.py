"""Search that fits the state a store is in: an application changes one line and is done.

A new query goes through B. Before every row is lifted it is compared with the old vectors, cut to
their dimension; after that with the shared column. Rows that came since and are not lifted yet are
looked up among the old vectors, lifted on the spot and merged in. They are looked up first: one
that is lifted between the two searches is then in both, not in neither.

Many threads may share one searcher; a process that is forked off goes on with its own connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import BadInput, StoreError
from crossfade.migration.columns import STATE, VECTOR
from crossfade.migration.journal import LIFTED, Journal, need_journal
from crossfade.migration.late import any_late
from crossfade.migration.opening import check_opened, open_migrating
from crossfade.spaces import fit_dim
from crossfade.stores import Hit, Store
from crossfade.stores.rows import matrix, similarities
from crossfade.upgrade import Upgrade

Model = Literal["new", "old"]
Float = NDArray[np.float32]
# Seconds: what a search may be held up for, and how long a store's word is taken for it.
_SHORT = 0.02
_NOW_AND_THEN = 5.0


def on_old(upgrade: Upgrade, mapped: Float) -> Float:
    """B(new) as a query on raw old vectors: cut or padded to d dimensions, turned back onto old's
    own axes where the upgrade was fitted with `rotate_old`.

    The inner product with old is that of B(new) with old as it sits in the shared space.
    """
    query = fit_dim(np.atleast_2d(mapped), upgrade.old_dim_)
    return np.asarray((query if upgrade.axes_ is None else query @ upgrade.axes_)[0], np.float32)


class Searcher:
    """Searches a store that is being migrated, given open or by its address.

    `refresh` is how long, in seconds, it trusts what it last saw of the migration's stage and of
    rows that are not lifted yet.
    """

    def __init__(
        self, store: Store | str | Path, upgrade: Upgrade, *, refresh: float = 1.0
    ) -> None:
        self.store = open_migrating(store) if isinstance(store, (str, Path)) else store
        self.upgrade, self.refresh = upgrade, refresh
        self._journal: Journal | None = None
        self._seen = -1e9
        self._late = LateRows(self.store, refresh)

    def search(
        self,
        query: ArrayLike,
        k: int = 10,
        *,
        model: Model = "new",
        where: dict[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        """The `k` nearest rows for one query vector of the new model, or of the old."""
        if model not in ("new", "old"):
            raise BadInput(f"there is no model {model!r}", step="say 'new' or 'old'")
        if k < 1:
            raise BadInput(f"k is {k}", step="ask for at least one")
        vector = np.asarray(query)
        if vector.ndim != 1:
            raise BadInput(f"a query of {vector.ndim} dimensions", step="pass one vector")
        try:
            return self._search(vector, k, model, where, columns)
        except (StoreError, BadInput):
            # The stage may have moved on since it was last looked at: look, and ask again.
            before = self._journal
            self._seen = -1e9
            if before is not None and self._stage().stage == before.stage:
                raise
            return self._search(vector, k, model, where, columns)

    def _search(
        self, vector: Any, k: int, model: Model, where: Any, columns: Sequence[str]
    ) -> list[Hit]:
        journal = self._stage()
        kept: dict[str, Any] = {"k": k, "where": where, "columns": columns}
        if journal.stage == "finished":
            mapped = self._mapped(vector, model)
            return self.store.search(mapped, column=journal.vector, **kept)
        if journal.stage == "finishing":
            return self._while_finishing(self._mapped(vector, model), journal, kept)
        old = vector if model == "old" else on_old(self.upgrade, self._mapped(vector, "new"))
        if model == "old" or journal.stage not in LIFTED:
            return self.store.search(self._checked(old), column=journal.vector, **kept)
        mapped = self._mapped(vector, model)
        late: list[Hit] = []
        if self._late.any():
            late = self.store.search(
                self._checked(old), column=journal.vector, missing=STATE, **kept
            )
        hits = self.store.search(mapped, column=VECTOR, **kept)
        if late:
            there = {hit.id for hit in hits}
            fresh = [hit for hit in self._lifted(late, mapped) if hit.id not in there]
            hits = sorted([*hits, *fresh], key=lambda hit: -hit.score)[:k]
        return hits

    def _while_finishing(self, mapped: Float, journal: Journal, kept: dict[str, Any]) -> list[Hit]:
        """The shared column takes the old one's name at some moment of `finish`."""
        try:
            return self.store.search(mapped, column=VECTOR, **kept)
        except (StoreError, BadInput):
            if VECTOR in self.store.describe().added:
                raise
            return self.store.search(mapped, column=journal.vector, **kept)

    def _lifted(self, hits: list[Hit], mapped: Float) -> list[Hit]:
        """Late rows with the scores they will have once they are lifted."""
        rows = self.store.read([hit.id for hit in hits], [self.store.vector])
        old = matrix(rows[self.store.vector])
        good = [i for i in range(len(old)) if i not in bad_rows(old)]
        if not good:
            return []
        scores = similarities(self.store.metric, self.upgrade.forward(old[good]), mapped)
        ids = rows[self.store.id].to_pylist()
        lifted = {ids[i]: float(score) for i, score in zip(good, scores, strict=True)}
        return [replace(hit, score=lifted[hit.id]) for hit in hits if hit.id in lifted]

    def _mapped(self, vector: Any, model: Model) -> Float:
        mapped = self.upgrade.backward(vector) if model == "new" else self.upgrade.forward(vector)
        return np.asarray(mapped, np.float32)

    def _checked(self, old: Any) -> Float:
        if old.shape != (self.upgrade.old_dim_,):
            raise BadInput(
                f"the query has {len(old)} dimensions, and old vectors {self.upgrade.old_dim_}",
                step="is this a query of the model you named?",
            )
        return np.asarray(old, np.float32)

    def _stage(self) -> Journal:
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


class LateRows:
    """Whether there are rows that came and are not lifted, as far as a searcher knows.

    It looks when the store says that something has happened, and now and then anyway, for what a
    store says may be late. A look that takes long is left to a thread beside the searches.
    """

    def __init__(self, store: Store, refresh: float) -> None:
        self.store, self.refresh = store, refresh
        self._known = False
        self._asked = self._looked = -1e9
        self._took = 0.0
        self._activity: str | None = None
        self._owner, self._busy = os.getpid(), threading.Lock()

    def any(self) -> bool:
        """What is known, brought up to date if it is older than half of `refresh`."""
        if self._owner != os.getpid():
            # The thread that looked stayed with the parent.
            self._owner, self._busy = os.getpid(), threading.Lock()
        # Whoever asks first waits for an answer; later ones go by the last.
        first = self._looked < 0
        due = time.monotonic() - self._asked >= self.refresh / 2
        if due and self._busy.acquire(blocking=first):
            if self._took < _SHORT:
                self._look()
            else:
                threading.Thread(target=self._look, daemon=True).start()
        return self._known

    def _look(self) -> None:
        try:
            begin = time.monotonic()
            self._asked = begin
            activity = self.store.activity()
            quiet = activity is not None and activity == self._activity
            # A look may take a twentieth of the time, where nothing is known to have happened.
            if quiet and begin - self._looked < max(_NOW_AND_THEN, 20 * self._took):
                return
            self._known = any_late(self.store)
            self._activity, self._looked = activity, begin
            self._took = time.monotonic() - begin
        except (StoreError, BadInput):
            # A column that has gone, a server that is away: the search itself will tell.
            self._activity = None
        finally:
            self._busy.release()


def search(
    store: Store,
    query: ArrayLike,
    k: int = 10,
    *,
    upgrade: Upgrade,
    model: Model = "new",
    where: dict[str, Any] | None = None,
    columns: Sequence[str] = (),
) -> list[Hit]:
    """One search; for many, keep a `Searcher`, which remembers what state the store is in."""
    searcher = Searcher(store, upgrade)
    return searcher.search(query, k, model=model, where=where, columns=columns)
