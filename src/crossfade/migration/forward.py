"""The second step: F(old) into the shared column of every row. Nothing but old vectors is needed.

Run again it catches up: rows that came meanwhile are lifted, rows whose old vector or source has
changed since are lifted anew, rows that are as they were are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from crossfade.engines import Engine
from crossfade.errors import StoreError
from crossfade.journal.columns import HASH_LENGTH, LIFTED, STATE, UPGRADE, VECTOR
from crossfade.journal.journal import Journal, save_journal
from crossfade.journal.late import NAMED, any_late
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch, Named
from crossfade.search.sampling import keep_sample
from crossfade.stores import Id, Store, WholeColumns
from crossfade.stores.contract import ROWS, SpreadColumns
from crossfade.stores.rows import id_list
from crossfade.threads import ahead
from crossfade.upgrade import Upgrade

Progress = Callable[[int, int], None]
Stop = Callable[[], bool]
T = TypeVar("T")
# A row that the application changes each time between our reading and our writing it.
_ATTEMPTS = 8


@dataclass
class Lifted:
    """What a run of `forward` did."""

    looked_at: int = 0
    written: int = 0
    erased: int = 0
    unusable: int = 0
    first_unusable: list[Id] = field(default_factory=list)
    left: list[Id] = field(default_factory=list)
    seconds: float = 0.0
    stopped: bool = False

    @property
    def rate(self) -> float:
        return self.looked_at / self.seconds if self.seconds > 0 else 0.0


def lift_all(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    *,
    progress: Progress | None = None,
    stop: Stop = lambda: False,
    size: int = ROWS,
    index: bool = True,
    engine: Engine | None = None,
) -> tuple[Journal, Lifted]:
    """Lift every row that needs it, from where an earlier run was cut off; then build the index.

    With an `engine` its workers lift, and where a store can have parts of its columns written by
    others they read and write them too; what is journaled and committed is so here.
    """
    begin, done = time.monotonic(), Lifted()
    column = SharedColumn.of(upgrade, journal.space, journal.lift)
    fresh = journal.after_step("start")
    if fresh:
        journal = save_journal(store, journal.after("forward begun", stage="forwarding"))
    total = store.describe().rows

    def looked(batch: int) -> bool:
        """Tell how far it has come, and whether to stop."""
        done.looked_at += batch
        if progress is not None:
            progress(min(done.looked_at, total), total)
        done.stopped = done.stopped or stop()
        return done.stopped

    lifting = _Lifting(store, column, done, looked, size, engine)
    if journal.within("forward"):
        if engine is not None and isinstance(store, SpreadColumns):
            lifting.by_parts(store, journal, engine)
        elif isinstance(store, WholeColumns):
            lifting.by_columns(store, journal)
    # Columns pass over rows that change meanwhile, and over those that an earlier run has written
    # and that changed since; batches of rows find them.
    if not done.stopped and not (fresh and done.looked_at and not any_late(store)):
        resumed, done.looked_at = journal.cursor, 0
        journal = lifting.by_rows(journal, after=resumed)
        if resumed is not None and not done.stopped:
            # Rows before that may have changed since the earlier run went through them.
            journal = lifting.by_rows(journal, until=resumed)
    if not done.stopped:
        lifting.catch_up(journal)
        done.seconds = time.monotonic() - begin
        if journal.within("forward") and index:
            store.build_index(VECTOR)
        keep_sample(store)
        journal = journal.after(
            f"{done.written:,} rows lifted",
            stage="forward" if journal.within("forward") else journal.stage,
            cursor=None,
        )
    if done.stopped:
        done.seconds = time.monotonic() - begin
    if done.looked_at:
        journal = journal.after(rate=journal.rate | {"forward": done.rate})
    if done.written or done.erased:
        journal = journal.after(verified=None)
    return save_journal(store, journal), done


_Turn = tuple[pa.RecordBatch, Batch, pa.RecordBatch | None]
"""Rows, those of them that have lost their old vector, and what is to be written of them."""


@dataclass(frozen=True)
class _Lifting:
    """One run: what it reads and writes, and what it has done so far."""

    store: Store
    column: SharedColumn
    done: Lifted
    looked: Callable[[int], bool]
    size: int
    engine: Engine | None = None

    def by_parts(self, store: SpreadColumns, journal: Journal, engine: Engine) -> None:
        """The same where workers write the columns, a part of the table each."""
        columns = Batch.columns(store, journal.source)
        work = Lift.of(store, self.column, journal)
        with closing(store.write_spread(columns, work, engine.each, size=self.size)) as turns:
            for shown, written in turns:
                self.done.written += written
                if self.looked(shown):
                    return

    def by_columns(self, store: WholeColumns, journal: Journal) -> None:
        """All that is there, where a store writes whole columns better than rows."""
        seen, lift = 0, Lift.of(store, self.column, journal)

        def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
            nonlocal seen
            seen = len(rows)
            return lift(rows)

        columns = Batch.columns(store, journal.source)
        for written in store.write_all(columns, work, size=self.size):
            self.done.written += written
            if self.looked(seen):
                return
            seen = 0

    def by_rows(
        self, journal: Journal, *, after: Id | None = None, until: Id | None = None
    ) -> Journal:
        """Batches of rows in the order of their ids, from behind one to another.

        Three things at once: the next batch comes in, this one is lifted, the last one is written.
        """
        store = self.store
        wanted = Batch.columns(store, journal.source)
        with ThreadPoolExecutor(1) as pool:
            writing: Future[Journal] | None = None
            stream = store.stream(wanted, after=after, size=self.size)
            for rows, emptied, made in self._lifted(stream, journal):
                if writing is not None:
                    journal = writing.result()
                last = id_list(rows[store.id].slice(len(rows) - 1))[0]
                writing = pool.submit(self._write, emptied, made, journal, last)
                if self.looked(len(rows)) or (until is not None and not _before(last, until)):
                    break
            return journal if writing is None else writing.result()

    def _lifted(self, stream: Iterator[pa.RecordBatch], journal: Journal) -> Iterator[_Turn]:
        store, work = self.store, Lift.of(self.store, self.column, journal)
        if self.engine is None:
            for rows in ahead(stream):
                batch = Batch.of(store, rows, journal.source)
                yield rows, batch.take(batch.emptied), work.made_of(batch)
            return
        for rows, made in self.engine.in_order(work, stream):
            # Of rows that were never written none can have been emptied since.
            known = Batch.of(store, rows.filter(rows[UPGRADE].is_valid()), journal.source)
            yield rows, known.take(known.emptied), made

    def catch_up(self, journal: Journal) -> None:
        """Rows that changed under our hands, and rows that came behind the cursor."""
        store, done = self.store, self.done
        columns = Batch.columns(store, journal.source)
        lift = Lift.of(store, self.column, journal)
        for attempt in range(_ATTEMPTS):
            time.sleep(0.05 * attempt)
            todo, done.left = done.left, []
            for part in parts(todo, self.size):
                batch = Batch.of(store, store.read(part, columns), journal.source)
                self._write(batch.take(batch.emptied), lift.made_of(batch), journal)
            late, done.unusable, done.first_unusable = 0, 0, []
            for rows in store.stream(columns, size=self.size, missing=STATE):
                batch = Batch.of(store, rows, journal.source)
                bad = batch.take(batch.unusable)
                done.unusable += len(bad)
                done.first_unusable += bad.ids[: NAMED - len(done.first_unusable)]
                late += len(batch) - len(bad)
                self._write(batch.take(batch.emptied), lift.made_of(batch), journal)
            if not late and not done.left:
                return
        if done.left:
            raise StoreError(
                f"row {done.left[0]!r} and {len(done.left) - 1} others change faster than they can "
                "be written",
                where=store.name,
                step="run the command again when the store is calmer",
            )

    def _write(
        self,
        emptied: Batch,
        made: pa.RecordBatch | None,
        journal: Journal,
        last: Id | None = None,
    ) -> Journal:
        """Write the rows, then how far it has come: a kill in between repeats what changes nothing.

        Rows that have lost their old vector lose the shared one: the application has taken them out
        of its search.
        """
        if made is not None:
            written = self.store.write(made)
            self.done.written += written
            if written < len(made):
                self.done.left += id_list(made[self.store.id])
        if len(emptied):
            erased = self.store.erase(emptied.marks())
            self.done.erased += erased
            if erased < len(emptied):
                self.done.left += emptied.ids
        return journal if last is None else save_journal(self.store, journal.after(cursor=last))


def _before(one: Id, other: Id) -> bool:
    """Whether an id comes before another of the same store; text by code point."""
    return str(one) < str(other) if isinstance(other, str) else int(one) < int(other)


@dataclass(frozen=True, eq=False)
class Lift:
    """The work of this step: rows as a store shows them, and what is to be written of those that
    need a shared vector; None if none does. It holds nothing of the store, and can go anywhere."""

    id: str
    vector: str
    source: str | None
    column: SharedColumn
    upgrade: str
    late: bool

    @classmethod
    def of(cls, store: Named, column: SharedColumn, journal: Journal) -> Lift:
        ours = journal.upgrade[:HASH_LENGTH]
        return cls(store.id, store.vector, journal.source, column, ours, journal.lifted)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        return self.made_of(Batch.of(self, rows, self.source))

    def made_of(self, batch: Batch) -> pa.RecordBatch | None:
        todo = batch.take(batch.stale(self.upgrade) & ~batch.unusable)
        if not len(todo):
            return None
        return todo.written(self.column.lift(todo.old), LIFTED, self.upgrade, late=self.late)


def parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Items in lists of at most `size`.

    >>> list(parts([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    part: list[T] = []
    for one in items:
        part.append(one)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
