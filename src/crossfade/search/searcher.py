"""Search that fits the state a store is in: an application changes one line and is done.

A new query by itself goes through B. Before every row is lifted it is compared with the old
vectors, cut to their dimension; after that with the shared column. With the old model's query
beside it both are asked (`crossfade.asking`). Rows that came since and are not lifted yet are
looked up among the old vectors, lifted on the spot and merged in. They are looked up first: one
that is lifted between the two searches is then in both, not in neither.

Many threads may share one searcher; a process that is forked off goes on with its own connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.asking import WAYS, AskedFrom, Asking, asking_at, blended
from crossfade.badrows import bad_rows
from crossfade.errors import BadInput, StoreError
from crossfade.journal.columns import FILLED, LIFTED, STATE, VECTOR, state_of
from crossfade.journal.journal import Journal
from crossfade.journal.late import any_late
from crossfade.journal.opening import open_migrating
from crossfade.journal.space import SharedColumn
from crossfade.search.asking import Question, Rows, Scores, joined
from crossfade.search.calibration import Sample
from crossfade.search.sampling import read_sample
from crossfade.search.stage import Stage
from crossfade.stores import Hit, Store, TwoSided
from crossfade.stores.rows import id_list, matrix, similarities
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]
# Seconds: what a search may be held up for, and how long a store's word is taken for it.
_SHORT = 0.02
_NOW_AND_THEN = 5.0
# Candidates of each side when both are asked: twenty give what the whole gallery gives.
_DEPTH = 20
# How many times `refresh` a sample of the gallery is trusted: its rows are filled bit by bit.
_SAMPLE_AGE = 30
# Of many queries so many are asked side by side.
_TOGETHER = 8


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
        self.stage = Stage(self.store, upgrade, refresh)
        self._late = LateRows(self.store, refresh)
        # A look at all that a store can do takes longer than many a search.
        self._two_sided = self.store if isinstance(self.store, TwoSided) else None
        self._sampled: tuple[float, str, Sample] | None = None
        self._columns: tuple[str, SharedColumn] | None = None

    def search(
        self,
        new: ArrayLike | None = None,
        k: int = 10,
        *,
        old: ArrayLike | None = None,
        ask: Asking | None = None,
        where: dict[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        """The `k` best rows for one query, given as the new model's vector, the old one's, or both.

        With both it asks as the plan says; without one, both models while the old vectors are
        there, which at no point of a migration is worse than today's search by more than chance.
        Scores are then deviations from the gallery's mean. `ask` says otherwise: `new`, `old`,
        `both` or `blend`. Once a migration is finished there is the new model alone.
        """
        if k < 1:
            raise BadInput(f"k is {k}", step="ask for at least one")
        journal = self.stage.journal()
        query = _Query.of(self.upgrade, self._column(journal), new, old)
        way = query.way(ask, self.planned(journal))
        try:
            return self._search(query, way, k, where, columns)
        except (StoreError, BadInput):
            # The stage may have moved on since it was last looked at: look, and ask again.
            if not self.stage.moved_on():
                raise
            return self._search(query, way, k, where, columns)

    def planned(self, journal: Journal, asked: AskedFrom = ()) -> Asking | None:
        """How the plan says to ask where so much is filled as the sample tells; another plan than
        the journal's may be given by what it has `asked`."""
        first = asked[0][1] if asked else journal.asking
        asked = asked or journal.asked
        if len(asked) < 2 or journal.over:
            return first
        try:
            return asking_at(asked, self._sample(journal).share)
        except (StoreError, BadInput):
            # The columns change places in this moment; how to ask then is for the search to see.
            return first

    def search_many(
        self,
        new: ArrayLike | None = None,
        k: int = 10,
        *,
        old: ArrayLike | None = None,
        ask: Asking | None = None,
        where: dict[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[list[Hit]]:
        """`search` for many queries, one in each row, several at a time."""
        given = {n: np.asarray(x) for n, x in (("new", new), ("old", old)) if x is not None}
        counts = {len(x) for x in given.values()}
        if len(counts) > 1 or any(x.ndim != 2 for x in given.values()):
            raise BadInput("queries that do not go together", step="pass (m, d) arrays of one m")
        if not given:
            raise BadInput("no queries", step="pass new=, old= or both")

        def one(row: int) -> list[Hit]:
            sides = {name: x[row] for name, x in given.items()}
            return self.search(k=k, ask=ask, where=where, columns=columns, **sides)

        with ThreadPoolExecutor(_TOGETHER) as pool:
            return list(pool.map(one, range(counts.pop())))

    def _search(
        self, query: _Query, way: Asking, k: int, where: Any, columns: Sequence[str]
    ) -> list[Hit]:
        journal = self.stage.journal()
        kept: dict[str, Any] = {"k": k, "where": where, "columns": columns}
        if journal.finished:
            return self.store.search(query.shared, column=journal.vector, **kept)
        if journal.finishing:
            return self._while_finishing(query, way, journal, kept)
        lifted = journal.lifted
        if not lifted:
            self._late.not_yet()
        if way == "both":
            return self._both(query, journal, lifted, kept)
        if way == "blend":
            # On the old vectors, at any share: among lifted rows a blended query loses more than
            # filled ones bring.
            one = blended(query.backward, query.old, journal.weights.blend)
            return self.store.search(one, column=journal.vector, **kept)
        if way == "old" or not lifted:
            on_old = query.old if way == "old" else query.backward
            return self.store.search(on_old, column=journal.vector, **kept)
        return self._on_shared(query.shared, query.backward, journal, kept)

    def _on_shared(
        self, shared: Float, on_old: Float, journal: Journal, kept: dict[str, Any]
    ) -> list[Hit]:
        """The shared column, and rows that are not in it yet by what they will be there."""
        late: list[Hit] = []
        if self._late.any():
            late = self.store.search(on_old, column=journal.vector, missing=STATE, **kept)
        hits = self.store.search(shared, column=VECTOR, **kept)
        if late:
            there = {hit.id for hit in hits}
            fresh = [hit for hit in self._lifted(late, shared) if hit.id not in there]
            hits = sorted([*hits, *fresh], key=lambda hit: -hit.score)[: kept["k"]]
        return hits

    def _both(
        self, query: _Query, journal: Journal, lifted: bool, kept: dict[str, Any]
    ) -> list[Hit]:
        """The first of each side, scored by both models exactly, on one scale."""
        wanted = kept["k"]
        kept = kept | {"k": max(_DEPTH, 2 * wanted)}
        question = query.question
        if self._two_sided is None:
            hits, scores = self._search_each(question, journal, lifted, kept)
        else:
            hits, scores = _search_at_once(self._two_sided, question, lifted, kept)
        if not hits:
            return []
        usable = ~np.isnan(scores.old)
        if journal.finishing and not usable.all():
            raise self._leaving()
        sample = self._sample(journal)
        joint = joined(question, scores, sample, self.store.distance, journal.weights)
        # What has no old vector any more is no hit of a search that asks for it.
        best = np.argsort(np.where(usable, -joint, np.inf), kind="stable")[: usable.sum()]
        return [replace(hits[at], score=float(joint[at])) for at in best[:wanted].tolist()]

    def _search_each(
        self, question: Question, journal: Journal, lifted: bool, kept: dict[str, Any]
    ) -> tuple[list[Hit], Scores]:
        """One search after the other, then a look at the vectors of all that was found."""
        # Rows that came late are among the old vectors, where the old query finds them.
        found = self.store.search(question.old, column=journal.vector, **kept)
        if lifted:
            found += self.store.search(question.shared, column=VECTOR, **kept)
        else:
            found += self.store.search(question.backward, column=journal.vector, **kept)
        hits = {hit.id: hit for hit in found}
        # Stores read rows by id faster than they bring vectors along with a search.
        read = self.store.read(list(hits), [journal.vector, *([VECTOR, STATE] if lifted else [])])
        there = read[journal.vector].is_valid().to_numpy(zero_copy_only=False)
        old = matrix(read[journal.vector])
        if not there.any():
            old = np.zeros((len(read), self.upgrade.old_dim_), np.float32)
        if old.shape[1] != self.upgrade.old_dim_:
            # The columns have changed places between one question and the other.
            raise self._leaving()
        shared = np.zeros((len(old), len(question.shared)), np.float32)
        if lifted:
            shared = matrix(read[VECTOR])
        states = _states(read[STATE].to_pylist() if lifted else [None] * len(old))
        scores = Scores.of(question, Rows(old, shared, *states), self.store.distance)
        scores = replace(scores, old=np.where(there, scores.old, np.nan))
        return [hits[key] for key in id_list(read[self.store.id])], scores

    def _column(self, journal: Journal) -> SharedColumn:
        """How the shared column is asked: decided when the migration was started."""
        if self._columns is None or self._columns[0] != journal.migration:
            found = SharedColumn.of(self.upgrade, journal.space, journal.lift)
            self._columns = (journal.migration, found)
        return self._columns[1]

    def _sample(self, journal: Journal) -> Sample:
        """Rows of the gallery to bring scores to one scale by; read again as it is filled."""
        now = time.monotonic()
        known = self._sampled
        if (
            known is None
            or known[1] != journal.stage
            or now - known[0] > (_SAMPLE_AGE * self.refresh)
        ):
            found = read_sample(self.store, filled=journal.lifted)
            if found.old.shape[1] != self.upgrade.old_dim_:
                raise self._leaving()
            if journal.lifted:
                found = replace(found, lifted=self._column(journal).lift(found.old))
            self._sampled = known = (now, journal.stage, found)
        return known[2]

    def _leaving(self) -> StoreError:
        """What says that there is the shared column alone from here on."""
        return StoreError("old vectors are on their way out", where=self.store.name)

    def _while_finishing(
        self, query: _Query, way: Asking, journal: Journal, kept: dict[str, Any]
    ) -> list[Hit]:
        """The shared column takes the old one's name at some moment of `finish`; until the old
        vectors go, both are asked if both were to be."""
        if way == "both":
            try:
                return self._both(query, journal, True, kept)
            except (StoreError, BadInput):
                # The old vectors are on their way out: from here on there is the shared column.
                self._sampled = None
        try:
            return self.store.search(query.shared, column=VECTOR, **kept)
        except (StoreError, BadInput):
            if VECTOR in self.store.describe().added:
                raise
            return self.store.search(query.shared, column=journal.vector, **kept)

    def _lifted(self, hits: list[Hit], mapped: Float) -> list[Hit]:
        """Late rows with the scores they will have once they are lifted."""
        rows = self.store.read([hit.id for hit in hits], [self.store.vector])
        old = matrix(rows[self.store.vector])
        good = [i for i in range(len(old)) if i not in bad_rows(old)]
        if not good:
            return []
        lifted_rows = self._column(self.stage.journal()).lift(old[good])
        scores = similarities(self.store.distance, lifted_rows, mapped)
        ids = rows[self.store.id].to_pylist()
        lifted = {ids[i]: float(score) for i, score in zip(good, scores, strict=True)}
        return [replace(hit, score=lifted[hit.id]) for hit in hits if hit.id in lifted]


def _search_at_once(
    store: TwoSided, question: Question, lifted: bool, kept: dict[str, Any]
) -> tuple[list[Hit], Scores]:
    """By a store that compares rows with both queries itself."""
    shared = question.shared if lifted else None
    found = store.search_both(
        question.old, question.backward, shared, column=VECTOR, state=STATE, **kept
    )
    states = _states(found.states)
    return found.hits, Scores(found.old, found.backward, found.shared, *states, found.vectors)


def _states(told: Sequence[str | None]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are lifted, and which are filled."""
    states = np.array([state_of(one) for one in told])
    return states == LIFTED, states == FILLED


@dataclass(frozen=True, eq=False)
class _Query:
    """One query, of one model or of both, in the forms it is asked in."""

    upgrade: Upgrade
    column: SharedColumn
    new: NDArray[Any] | None
    given_old: NDArray[Any] | None

    @classmethod
    def of(
        cls,
        upgrade: Upgrade,
        column: SharedColumn,
        new: ArrayLike | None,
        old: ArrayLike | None,
    ) -> _Query:
        sides: dict[str, NDArray[Any] | None] = {}
        for name, given, dim in (("new", new, upgrade.new_dim_), ("old", old, upgrade.old_dim_)):
            vector = None if given is None else np.asarray(given)
            if vector is not None and vector.shape != (dim,):
                raise BadInput(
                    f"the {name} query is of shape {vector.shape}, and {name} vectors have {dim} "
                    "dimensions",
                    step="pass one vector of that model",
                )
            sides[name] = vector
        return cls(upgrade, column, sides["new"], sides["old"])

    def way(self, ask: Asking | None, planned: Asking | None = None) -> Asking:
        """How to ask, by what was given, what is asked for, and what the plan says."""
        has: dict[str, bool] = {"new": self.new is not None, "old": self.given_old is not None}
        if ask is not None and ask not in WAYS:
            raise BadInput(f"there is no way {ask!r} to ask", step=f"say {', '.join(WAYS)}")
        needed = {"new": ["new"], "old": ["old"]}.get(ask or "", ["new", "old"])
        lacking = [name for name in needed if not has[name]]
        if ask is not None and lacking:
            raise BadInput(
                f"asking {ask!r} needs the {lacking[0]} model's query", step=f"pass {lacking[0]}="
            )
        if not any(has.values()):
            raise BadInput("no query", step="pass new=, old= or both")
        if ask is None and all(has.values()):
            return planned or "both"
        return ask or ("new" if has["new"] else "old")

    @property
    def old(self) -> Float:
        return np.asarray(self.given_old, np.float32)

    @cached_property
    def shared(self) -> Float:
        """As a query on the shared column; of the old model where that is all there is."""
        if self.new is None:
            return np.asarray(self.column.lift(self.old), np.float32)
        return np.asarray(self.column.ask(self.new), np.float32)

    @cached_property
    def backward(self) -> Float:
        """As a query on old vectors."""
        return self.old if self.new is None else self.upgrade.query_for_old(self.new)

    @property
    def question(self) -> Question:
        return Question(self.old, self.shared, self.backward)


class LateRows:
    """Whether there are rows that came and are not lifted, as far as a searcher knows.

    It looks when the store says that something has happened, and now and then anyway, for what a
    store says may be late. The first look is the caller's own; later ones are in a thread beside
    the searches, which wait for it for a moment, and not at all where it has taken longer.
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
        # Whoever asks first, or trusts nothing that he last saw, looks himself, for as long as it
        # takes; later ones go by the last look.
        alone = self._looked < 0 or self.refresh <= 0
        due = time.monotonic() - self._asked >= self.refresh / 2
        if due and self._busy.acquire(blocking=alone):
            if alone:
                self._look()
            else:
                looking = threading.Thread(target=self._look, daemon=True)
                looking.start()
                if self._took < _SHORT:
                    looking.join(_SHORT)
        return self._known

    def not_yet(self) -> None:
        """All rows are old still: whoever lifts the last of them looks for late ones himself, so
        that the first search after that need not wait for a look of its own."""
        self._looked = max(self._looked, 0.0)

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
    new: ArrayLike | None = None,
    k: int = 10,
    *,
    upgrade: Upgrade,
    old: ArrayLike | None = None,
    ask: Asking | None = None,
    where: dict[str, Any] | None = None,
    columns: Sequence[str] = (),
) -> list[Hit]:
    """One search; for many, keep a `Searcher`, which remembers what state the store is in."""
    searcher = Searcher(store, upgrade)
    return searcher.search(new, k, old=old, ask=ask, where=where, columns=columns)
