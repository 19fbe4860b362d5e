"""The second step: F(old) into the shared column of every row. Nothing but old vectors is needed.

Run again it catches up: rows that came meanwhile are lifted, rows whose old vector or source has
changed since are lifted anew, rows that are as they were are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from crossfade.errors import StoreError
from crossfade.journal.columns import HASH_LENGTH, LIFTED, STATE, VECTOR
from crossfade.journal.journal import Journal, save_journal
from crossfade.journal.late import NAMED, any_late
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch
from crossfade.search.sampling import keep_sample
from crossfade.stores import Id, Store, WholeColumns
from crossfade.stores.contract import ROWS
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
) -> tuple[Journal, Lifted]:
    """Lift every row that needs it, from where an earlier run was cut off; then build the index."""
    begin, done = time.monotonic(), Lifted()
    column = SharedColumn.of(upgrade, journal.space)
    fresh = journal.stage == "started"
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

    if journal.stage == "forwarding" and isinstance(store, WholeColumns):
        _by_columns(store, column, journal, done, looked, size)
    # Columns pass over rows that change meanwhile, and over those that an earlier run has written
    # and that changed since; batches of rows find them.
    if not done.stopped and not (fresh and done.looked_at and not any_late(store)):
        resumed, done.looked_at = journal.cursor, 0
        journal = _by_rows(store, column, journal, done, looked, size, after=resumed)
        if resumed is not None and not done.stopped:
            # Rows before that may have changed since the earlier run went through them.
            journal = _by_rows(store, column, journal, done, looked, size, until=resumed)
    if not done.stopped:
        _catch_up(store, column, journal, done, size)
        done.seconds = time.monotonic() - begin
        if journal.stage == "forwarding" and index:
            store.build_index(VECTOR)
        keep_sample(store)
        journal = journal.after(
            f"{done.written:,} rows lifted",
            stage="forward" if journal.stage == "forwarding" else journal.stage,
            cursor=None,
        )
    if done.stopped:
        done.seconds = time.monotonic() - begin
    if done.looked_at:
        journal = journal.after(rate=journal.rate | {"forward": done.rate})
    if done.written or done.erased:
        journal = journal.after(verified=None)
    return save_journal(store, journal), done


def _by_columns(
    store: WholeColumns,
    column: SharedColumn,
    journal: Journal,
    done: Lifted,
    looked: Callable[[int], bool],
    size: int,
) -> None:
    """All that is there, where a store writes whole columns better than rows."""
    seen = 0

    def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
        nonlocal seen
        seen = len(rows)
        return lifted(column, journal, Batch.of(store, rows, journal.source))

    for written in store.write_all(Batch.columns(store, journal.source), work, size=size):
        done.written += written
        if looked(seen):
            return
        seen = 0


def _by_rows(
    store: Store,
    column: SharedColumn,
    journal: Journal,
    done: Lifted,
    looked: Callable[[int], bool],
    size: int,
    *,
    after: Id | None = None,
    until: Id | None = None,
) -> Journal:
    """Batches of rows in the order of their ids, from behind one to another.

    Three things at once: the next batch comes in, this one is lifted, the last one is written.
    """
    wanted = Batch.columns(store, journal.source)
    with ThreadPoolExecutor(1) as pool:
        writing: Future[Journal] | None = None
        for rows in ahead(store.stream(wanted, after=after, size=size)):
            batch = Batch.of(store, rows, journal.source)
            made = lifted(column, journal, batch)
            if writing is not None:
                journal = writing.result()
            last = id_list(rows[store.id].slice(len(rows) - 1))[0]
            writing = pool.submit(_write, store, batch, made, journal, last, done)
            if looked(len(rows)) or (until is not None and not _before(last, until)):
                break
        return journal if writing is None else writing.result()


def _before(one: Id, other: Id) -> bool:
    """Whether an id comes before another of the same store; text by code point."""
    return str(one) < str(other) if isinstance(other, str) else int(one) < int(other)


def lifted(column: SharedColumn, journal: Journal, batch: Batch) -> pa.RecordBatch | None:
    """What is to be written of the rows of a batch that need a shared vector; None if none does."""
    ours = journal.upgrade[:HASH_LENGTH]
    todo = batch.take(batch.stale(ours) & ~batch.unusable)
    if not len(todo):
        return None
    return todo.written(column.lift(todo.old), LIFTED, ours, late=journal.lifted)


def _write(
    store: Store,
    batch: Batch,
    made: pa.RecordBatch | None,
    journal: Journal,
    last: Id | None,
    done: Lifted,
) -> Journal:
    """Write the rows, then how far it has come: a kill in between repeats what changes nothing.

    Rows that have lost their old vector lose the shared one: the application has taken them out of
    its search.
    """
    if made is not None:
        written = store.write(made)
        done.written += written
        if written < len(made):
            done.left += id_list(made[store.id])
    emptied = batch.take(batch.emptied)
    if len(emptied):
        erased = store.erase(emptied.marks())
        done.erased += erased
        if erased < len(emptied):
            done.left += emptied.ids
    return journal if last is None else save_journal(store, journal.after(cursor=last))


def _catch_up(
    store: Store, column: SharedColumn, journal: Journal, done: Lifted, size: int
) -> None:
    """Rows that changed under our hands, and rows that came behind the cursor."""
    columns = Batch.columns(store, journal.source)
    for attempt in range(_ATTEMPTS):
        time.sleep(0.05 * attempt)
        todo, done.left = done.left, []
        for part in parts(todo, size):
            batch = Batch.of(store, store.read(part, columns), journal.source)
            _write(store, batch, lifted(column, journal, batch), journal, None, done)
        late, done.unusable, done.first_unusable = 0, 0, []
        for rows in store.stream(columns, size=size, missing=STATE):
            batch = Batch.of(store, rows, journal.source)
            bad = batch.take(batch.unusable)
            done.unusable += len(bad)
            done.first_unusable += bad.ids[: NAMED - len(done.first_unusable)]
            late += len(batch) - len(bad)
            _write(store, batch, lifted(column, journal, batch), journal, None, done)
        if not late and not done.left:
            return
    if done.left:
        raise StoreError(
            f"row {done.left[0]!r} and {len(done.left) - 1} others change faster than they can be "
            "written",
            where=store.name,
            step="run the command again when the store is calmer",
        )


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
