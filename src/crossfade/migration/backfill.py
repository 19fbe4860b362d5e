"""The third step: new vectors for items in the plan's order, blended with F(old) as the plan says.

A batch is read, embedded and written; a row that changed in between is not written, and its turn
comes again. After a kill at most one batch is embedded a second time. Where rows stand is in the
rows themselves, so a resumed run asks the store, not a counter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.plan import Plan
from crossfade.embedders import Embedder, Endpoint, VectorFile, embed_checked
from crossfade.errors import BadInput, BudgetSpent, CrossfadeError
from crossfade.journal.columns import FILLED, HASH_LENGTH, STATE, VECTOR, count_states
from crossfade.journal.journal import Journal, save_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch
from crossfade.migration.forward import Progress, Stop, parts
from crossfade.migration.order import placed, places_of
from crossfade.migration.preparing import Wanted
from crossfade.migration.resting import Resting
from crossfade.stores import Id, Store
from crossfade.upgrade import Upgrade

# A model is asked for fewer items at a time than a store writes: its memory may be small.
ASKED = 256
# What a slow model has made by then is written: a kill costs no more than that.
_SECONDS = 5.0
Placed = tuple[Id, int]
_ATTEMPTS = 5


@dataclass
class Filled:
    """What a run of `backfill` did, and why it ended."""

    written: int = 0
    at_no_cost: int = 0
    filled: int = 0
    rows: int = 0
    left: int = 0
    without_vector: int = 0
    seconds: float = 0.0
    why: str = ""
    stopped: bool = False

    @property
    def share(self) -> float:
        return self.filled / self.rows if self.rows else 0.0


def fill(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    embedder: Embedder,
    wanted: Wanted,
    *,
    known: VectorFile | None = None,
    progress: Progress | None = None,
    stop: Stop = lambda: False,
) -> tuple[Journal, Filled]:
    """Backfill until the planned share, the number of items, the budget or `stop` says enough."""
    task = journal.backfill
    if task is None:
        raise BadInput("nothing is prepared", where=store.name)
    begin = time.monotonic()
    journal = save_journal(
        store,
        journal.after(
            f"backfill to {task.target:.0%} with {task.embedder}, order {task.order}, "
            f"a = {task.blend}",
            stage="backfilling",
            verified=None,
        ),
    )
    done = Filled(rows=store.describe().rows, filled=count_states(store)[FILLED])
    goal = task.goal(done.rows)
    run = _Run(store, upgrade, journal, done, wanted, goal, progress, stop)
    order = Path(task.order_file)
    if known is not None:
        held = places_of(order, list(_known_ids(store, known)), task.order_rows)
        run.all_of(known, iter(held.items()), free=True)
    with run.keeping(embedder):
        run.all_of(embedder, _in_order(store, order, task.order_rows), free=False)
    done.seconds = time.monotonic() - begin
    short = done.filled < goal
    ended = "every row of the order is done" if short else f"the share of {task.target:.0%}"
    done.why = run.why or ended
    journal = run.journal
    if done.written:
        store.build_index(VECTOR)
    rates = journal.rate
    if done.written > done.at_no_cost:
        rates = rates | {"backfill": (done.written - done.at_no_cost) / max(done.seconds, 1e-9)}
    journal = journal.after(f"{done.written:,} rows backfilled; ended by {done.why}", rate=rates)
    return save_journal(store, journal), done


class _Run:
    """The loop, and what it may still do."""

    def __init__(
        self,
        store: Store,
        upgrade: Upgrade,
        journal: Journal,
        done: Filled,
        wanted: Wanted,
        goal: int,
        progress: Progress | None,
        stop: Stop,
    ) -> None:
        self.store, self.upgrade, self.journal = store, upgrade, journal
        self.done, self.wanted, self.goal = done, wanted, goal
        self.progress, self.stop = progress, stop
        self.ours = journal.upgrade[:HASH_LENGTH]
        self.column = SharedColumn.of(upgrade, journal.space)
        task = journal.backfill
        if task is None:
            raise BadInput("nothing is prepared", where=store.name)
        self.plan, self.rows_in_order = Plan.load(Path(task.plan_folder)), task.order_rows
        self.text = wanted.source or journal.source
        named = [] if self.text in (None, journal.source) else [str(self.text)]
        self.columns = [*Batch.columns(store, journal.source), *named]
        self.first = done.filled
        self.why = ""
        self.resting = Resting(wanted.processors)

    @contextmanager
    def keeping(self, embedder: Embedder) -> Iterator[None]:
        """Write down what is spent before it is: a kill must not forget it."""
        if not isinstance(embedder, Endpoint):
            yield
            return

        def keep(spent: float) -> None:
            self.journal = save_journal(self.store, self.journal.after(spent=spent))

        with embedder.spend.kept(self.journal.spent, keep):
            yield

    def all_of(self, embedder: Embedder, ids: Iterator[Placed], *, free: bool) -> None:
        """Go through `ids`; rows that could not be written get another turn at the end."""
        again: list[Placed] = []
        size = self.wanted.batch
        if isinstance(embedder, Endpoint):
            # One request at a time, so that what was paid for is written before the next one.
            size = min(size, embedder.settings.batch_size)
        for attempt in range(_ATTEMPTS):
            turn = ids if attempt == 0 else iter(again)
            again = []
            for part in parts(turn, size):
                rest = dict(part)
                while rest:
                    if self._enough(free):
                        return
                    try:
                        with self.resting.after(self.stop):
                            changed, rest = self._some(embedder, rest, free)
                    except BudgetSpent as spent:
                        self.why = spent.cause
                        return
                    again += changed
            if not again:
                return
        self.done.left += len(again)

    def _enough(self, free: bool) -> bool:
        """Known vectors cost nothing: of those only the share and the user's stop are asked."""
        paid = self.done.written - self.done.at_no_cost
        if self.why:
            return True
        if self.stop():
            self.why, self.done.stopped = "the user's stop", True
        elif self.done.filled >= self.goal:
            return True
        elif not free and self.wanted.items is not None and paid >= self.wanted.items:
            self.why = f"the limit of {self.wanted.items:,} items"
        return bool(self.why)

    def _some(
        self, embedder: Embedder, at: dict[Id, int], free: bool
    ) -> tuple[list[Placed], dict[Id, int]]:
        """Embed and write what is due of these ids.

        Gives those that changed in between, and those that it did not come to.
        """
        rows = self.store.read(list(at), self.columns)
        batch = Batch.of(self.store, rows, self.journal.source)
        due = ~batch.unusable & ~(batch.state(FILLED) & ~batch.stale(self.ours))
        if isinstance(embedder, VectorFile):
            # A vector made beforehand is of the rows as they were when all were lifted: never
            # for one that came or changed since.
            has = (batch.revisions(late=True) == 0) & np.asarray(embedder.has(batch.ids))
            self.done.without_vector += int((due & ~has).sum())
            due &= has
        if embedder.needs_source:
            texts = batch.rows[self.text].to_pylist()
            empty = np.array([not isinstance(t, str) or not t.strip() for t in texts], bool)
            self.done.without_vector += int((due & empty).sum())
            due &= ~empty
        room = self.goal - self.done.filled
        if not free and self.wanted.items is not None:
            room = min(room, self.wanted.items - (self.done.written - self.done.at_no_cost))
        due &= np.cumsum(due) <= room
        todo = batch.take(due)
        if not len(todo):
            return [], {}
        new, failure = self._embedded(embedder, todo)
        rest = {key: at[key] for key in todo.ids[len(new) :]}
        todo = todo.take(np.arange(len(todo)) < len(new))
        places = np.array([at[key] for key in todo.ids])
        shared = self.column.fill(self.plan, new, todo.old, places, self.rows_in_order)
        already = int(todo.state(FILLED).sum())
        written = self.store.write(todo.written(shared, FILLED, self.ours, late=True))
        self.done.written += written
        self.done.at_no_cost += written if free else 0
        self.done.filled += max(0, written - already)
        if self.progress is not None:
            self.progress(self.done.filled - self.first, max(0, self.goal - self.first))
        if failure is not None:
            raise failure
        return [(key, at[key]) for key in todo.ids] if written < len(todo) else [], rest

    def _embedded(
        self, embedder: Embedder, todo: Batch
    ) -> tuple[NDArray[np.float32], CrossfadeError | None]:
        """New vectors of as many rows, from the first, as there is time and money for.

        What was embedded before a failure is written before it is told.
        """
        ids = todo.ids
        texts = todo.rows[self.text].to_pylist() if embedder.needs_source else None
        if isinstance(embedder, Endpoint) and texts is not None:
            # As many as there is money for; not even one, and the endpoint says so.
            texts = texts[: max(1, embedder.spend.affordable(texts))]
            ids = ids[: len(texts)]
        found: list[NDArray[np.float32]] = []
        begin = time.monotonic()
        for first in range(0, len(ids), ASKED):
            some = slice(first, first + ASKED)
            if found and (self.stop() or time.monotonic() - begin > _SECONDS):
                break
            try:
                of = None if texts is None else texts[some]
                with self.resting.apart():
                    found.append(embed_checked(embedder, ids[some], of, self.upgrade.new_dim_))
            except CrossfadeError as failure:
                if not found:
                    raise
                return np.concatenate(found), failure
        return np.concatenate(found), None


def _known_ids(store: Store, known: VectorFile) -> Iterator[Id]:
    for rows in store.stream([STATE]):
        ids = rows[store.id].to_pylist()
        has = np.asarray(known.has(ids))
        yield from (key for key, there in zip(ids, has, strict=True) if there)


def _in_order(store: Store, order: Path, rows: int) -> Iterator[Placed]:
    """The plan's order, then rows it does not know: they came later, and count as its last."""
    seen: set[Id] = set()
    for key, place in placed(order):
        seen.add(key)
        yield key, place
    for batch in store.stream([STATE]):
        yield from ((key, rows) for key in batch[store.id].to_pylist() if key not in seen)
