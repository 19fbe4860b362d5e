"""The third step: new vectors for items in the plan's order, blended with F(old) as the plan says.

A batch is read, embedded and written, piece by piece as vectors come; a row that changed in between
is not written, and its turn comes again. After a kill at most what was not written yet is embedded
a second time. Where rows stand is in the rows themselves, so a resumed run asks the store, not a
counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.embedders import BaseEmbedder, embed_parts_checked
from crossfade.errors import BudgetSpent
from crossfade.journal.columns import FILLED, HASH_LENGTH, STATE, VECTOR, count_states
from crossfade.journal.journal import Journal, save_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch, differ
from crossfade.migration.forward import Progress, Stop, parts
from crossfade.migration.order import find_places, late_rows, placed
from crossfade.migration.preparation import Prepared, Wanted
from crossfade.migration.throttle import Throttle
from crossfade.remote import to_path
from crossfade.stores import Id, Store
from crossfade.upgrade import Upgrade

# After so long rows are read again before a slow model goes on with them: they may have changed.
_SECONDS = 5.0
Placed = tuple[Id, int]
_ATTEMPTS = 5
# As many times a batch that was refused is read and written again at once.
_TRIES = 2
_KNOWN = 1_000_000


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
    prepared: Prepared,
    embedder: BaseEmbedder,
    wanted: Wanted,
    *,
    known: BaseEmbedder | None = None,
    progress: Progress | None = None,
    stop: Stop = lambda: False,
) -> tuple[Journal, Filled]:
    """Backfill until the planned share, the number of items, the budget or `stop` says enough."""
    task, begin = prepared.task, time.monotonic()
    journal = save_journal(store, begun(prepared))
    done = Filled(rows=store.describe().rows, filled=count_states(store)[FILLED])
    goal = task.goal(done.rows)
    run = Run(store, upgrade, prepared, journal, done, wanted, goal, progress, stop)
    order = to_path(task.order_file)
    if known is not None:
        # Each look through the order is for many of them, and all at once would be too many.
        for some in parts(_known_ids(store, known), _KNOWN):
            held = find_places(order, list(some), task.order_rows)
            if not run.all_of(known, iter(held.items()), free=True):
                break
    # A kill must not forget what was spent: it is written down before it is.
    with embedder.keeping_spend(journal.spent, run.keep_spent):
        if run.all_of(embedder, placed(order), free=False):
            run.all_of(embedder, late_rows(store, order, task.order_rows), free=False)
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


def begun(prepared: Prepared) -> Journal:
    """The journal as it is written before the first row is filled."""
    task = prepared.task
    return prepared.journal.after(
        f"backfill to {task.target:.0%} with {task.embedder}, order {task.order}, a = {task.blend}",
        stage="backfilling",
        verified=None,
    )


class Run:
    """The loop, and what it may still do."""

    def __init__(
        self,
        store: Store,
        upgrade: Upgrade,
        prepared: Prepared,
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
        self.column = SharedColumn.of(upgrade, journal.space, journal.lift)
        self.plan, self.rows_in_order = prepared.plan, prepared.task.order_rows
        self.text = journal.source
        self.columns = Batch.columns(store, journal.source)
        self.first = done.filled
        self.why = ""
        self.cut = False
        """Whether rows were left out because no more may be filled."""
        self.resting = Throttle(wanted.processors)
        self.announce: Callable[[int], object] = lambda rows: None
        """Told how many rows are to be filled before they are written; may refuse by raising."""

    def keep_spent(self, spent: float) -> None:
        self.journal = save_journal(self.store, self.journal.after(spent=spent))

    def all_of(self, embedder: BaseEmbedder, ids: Iterator[Placed], *, free: bool) -> bool:
        """Go through `ids`; rows that could not be written get another turn at the end.

        Gives whether it has come to their end.
        """
        again: list[Placed] = []
        self.cut = False
        for attempt in range(_ATTEMPTS):
            turn = ids if attempt == 0 else iter(again)
            again = []
            for part in parts(turn, self.wanted.batch):
                rest = dict(part)
                while rest:
                    if self._enough(free):
                        return False
                    try:
                        changed, rest = self._some(embedder, rest, free)
                    except BudgetSpent as spent:
                        self.why = spent.cause
                        return False
                    again += changed
            if not again:
                return not self.cut
        self.done.left += len(again)
        return not self.cut

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
        self, embedder: BaseEmbedder, at: dict[Id, int], free: bool
    ) -> tuple[list[Placed], dict[Id, int]]:
        """Embed and write what is due of these ids.

        Gives those that changed in between, and those that it did not come to.
        """
        with self.resting.after(self.stop):
            todo = self._due(embedder, at, free)
        if not len(todo):
            return [], {}
        begin = time.monotonic()
        changed: list[Placed] = []
        ids = todo.ids
        made = np.zeros(len(todo), bool)
        turns = embed_parts_checked(
            embedder,
            ids,
            todo.rows[self.text].to_pylist() if embedder.needs_source else None,
            self.upgrade.new_dim_,
            lambda: self.stop() or time.monotonic() - begin > _SECONDS,
        )
        with closing(turns):
            while True:
                with self.resting.after(self.stop):
                    with self.resting.apart():
                        came = next(turns, None)
                    if came is None:
                        break
                    rows = np.concatenate([rows for rows, _ in came])
                    new = np.concatenate([vectors for _, vectors in came])
                    if made.any():
                        # To some stores what was written since is a change of all that was read.
                        some, vectors = self._read_again(todo, rows, new)
                    else:
                        some = todo.take(np.isin(np.arange(len(todo)), rows))
                        vectors = new[np.argsort(rows)]
                    made[rows] = True
                    written = self._write(some, vectors, at, free)
                    if written < len(rows):
                        written += self._write_again(todo, rows, new, at, free, written)
                    if written < len(rows):
                        changed += [(ids[row], at[ids[row]]) for row in rows]
        left = (key for key, there in zip(ids, made, strict=True) if not there)
        return changed, {key: at[key] for key in left}

    def _due(self, embedder: BaseEmbedder, at: dict[Id, int], free: bool) -> Batch:
        """Those of these rows that are to be embedded, as they are now."""
        rows = self.store.read(list(at), self.columns)
        batch = Batch.of(self.store, rows, self.journal.source)
        due = ~batch.unusable & ~(batch.state(FILLED) & ~batch.stale(self.ours))
        if embedder.prepared:
            # A vector made beforehand is of the rows as they were when all were lifted: never
            # for one that came or changed since.
            has = (batch.revisions(late=True) == 0) & embedder.has(batch.ids)
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
        fits = np.cumsum(due) <= room
        self.cut |= bool((due & ~fits).any())
        return batch.take(due & fits)

    def _read_again(
        self, todo: Batch, rows: NDArray[np.int64], new: NDArray[np.float32]
    ) -> tuple[Batch, NDArray[np.float32]]:
        """Those of these rows that are what they were when they were read, and their vectors."""
        ids = todo.ids
        read = self.store.read([ids[row] for row in rows], self.columns)
        now = Batch.of(self.store, read, self.journal.source)
        made_at = {ids[row]: place for place, row in enumerate(rows)}
        made = np.array([made_at[key] for key in now.ids], np.int64)
        same = ~now.unusable & ~np.asarray(differ(now.prints, todo.prints[rows[made]]), bool)
        if self.text is not None:
            before = todo.rows[self.text].take(pa.array(rows[made]))
            texts = zip(now.rows[self.text].to_pylist(), before.to_pylist(), strict=True)
            same &= np.array([text == other for text, other in texts], bool)
        return now.take(same), new[made[same]]

    def _write_again(
        self,
        todo: Batch,
        rows: NDArray[np.int64],
        new: NDArray[np.float32],
        at: dict[Id, int],
        free: bool,
        before: int,
    ) -> int:
        """Those of these rows that are what they were and not filled yet, though they were to be.

        A store that refuses a batch for the sake of one row should not have the others wait until
        the end of the order, nor be embedded twice. Gives how many have been filled after all,
        beside those that were written `before`.
        """
        total = 0
        for _ in range(_TRIES):
            some, vectors = self._read_again(todo, rows, new)
            filled = some.state(FILLED) & ~some.stale(self.ours)
            # Of a write whose answer was lost nobody knew that it was done.
            unknown = int(filled.sum()) - before - total
            if unknown > 0:
                self._count(unknown, free)
                total += unknown
            if filled.all():
                break
            total += self._write(some.take(~filled), vectors[~filled], at, free)
        return total

    def _count(self, rows: int, free: bool, already: int = 0) -> None:
        """So many rows were written, of which some had been filled before."""
        self.done.written += rows
        self.done.at_no_cost += rows if free else 0
        self.done.filled += max(0, rows - already)
        if self.progress is not None:
            self.progress(self.done.filled - self.first, max(0, self.goal - self.first))

    def _write(self, some: Batch, new: NDArray[np.float32], at: dict[Id, int], free: bool) -> int:
        """Write the vectors of these rows; gives how many had not changed."""
        if not len(some):
            return 0
        places = np.array([at[key] for key in some.ids])
        shared = self.column.fill(self.plan, new, some.old, places, self.rows_in_order)
        already = int(some.state(FILLED).sum())
        self.announce(len(some) - already)
        written = self.store.write(some.written(shared, FILLED, self.ours, late=True))
        self._count(written, free, already)
        return written


def _known_ids(store: Store, known: BaseEmbedder) -> Iterator[Id]:
    for rows in store.stream([STATE]):
        ids = rows[store.id].to_pylist()
        has = known.has(ids)
        yield from (key for key, there in zip(ids, has, strict=True) if there)
