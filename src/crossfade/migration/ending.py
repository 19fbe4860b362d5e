"""How a migration ends: `finish` keeps the shared vectors alone, `rollback` the old ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput, NotProven, StoreError
from crossfade.journal.columns import KNOWN, SUM, VECTOR, columns, count_states
from crossfade.journal.journal import KEY, Journal, load_journal, save_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch, damaged
from crossfade.migration.checks import check_obstacles, refuse_duplicates
from crossfade.migration.forward import Progress, lifted
from crossfade.migration.proof import unproven
from crossfade.search.sampling import KEY as SAMPLE
from crossfade.stores import Store
from crossfade.stores.contract import Work
from crossfade.stores.rows import matrix, one_batch
from crossfade.upgrade import Upgrade

Confirm = Callable[[list[str]], None]


def finish(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    *,
    force: bool = False,
    keep_old: bool = False,
    confirm: Confirm = lambda problems: None,
    progress: Progress | None = None,
) -> Journal:
    """Make the shared column the only one; killed, it can be run again.

    Rows that come or change until the last moment are lifted on the way. It can be rolled back
    until the old vectors are dropped, which is the last thing it does. `confirm` is told what
    speaks against it, before anything is done, and may raise. With `keep_old` nothing is dropped:
    both columns stay, to be asked together, and all of it can still be undone.
    """
    if journal.stage == "finished":
        if keep_old:
            raise BadInput("the old vectors are gone", where=store.name)
        return journal
    if keep_old and journal.stage == "finishing":
        raise BadInput(
            "is being finished without its old vectors",
            where=store.name,
            step="run finish again to end that, or rollback",
        )
    journal.require("finish", store.name)
    check_obstacles(store, "finish")
    refuse_duplicates(store)
    if journal.stage != "finishing":
        problems = unproven(store, upgrade, journal, progress, keep_old=keep_old)
        if problems and not force:
            raise NotProven(
                "; ".join(problems),
                where=store.name,
                step="run forward, backfill and verify until nothing is left, or add --force",
            )
        confirm(problems)
        for problem in problems:
            journal = journal.after(f"finish forced although {problem}")
        if keep_old:
            return save_journal(store, journal.after("finished: old vectors kept", kept=True))
        counts = {str(state): rows for state, rows in count_states(store).items()}
        journal = journal.after("finish begun", stage="finishing", counts=counts)
        journal = save_journal(store, journal)
    wanted = [*Batch.columns(store, journal.source), VECTOR, SUM]
    name = store.promote(VECTOR, KNOWN, columns=wanted, work=_mend(store, upgrade, journal))
    store.put(SAMPLE, None)
    done = journal.after("finished: the old vectors are gone", stage="finished", vector=name)
    return save_journal(store, done)


def rollback(store: Store, journal: Journal | None, *, force: bool = False) -> Journal | None:
    """Drop everything the migration added, and put the old vectors back where they were.

    Without a journal everything that any migration has added. Where a `finish` has let the columns
    change places, vectors that the application has written since would be lost with it; that is
    refused without `force`.
    """
    if journal is None:
        there = store.describe().added
        if VECTOR in there:
            store.withdraw(VECTOR)
        store.drop_columns(there)
        store.put(KEY, None)
        return None
    if journal.stage == "rolled back":
        return journal
    if journal.stage == "finished":
        raise BadInput(
            "the old vectors are gone: what is finished cannot be rolled back",
            where=store.name,
            step="restore a backup, or migrate back with an upgrade in the other direction",
        )
    if journal.stage == "finishing":
        if not force:
            _refuse_newer(store)
        store.withdraw(VECTOR)
        if not force:
            # One may have come in between; nothing is lost before the columns are dropped.
            _refuse_newer(store)
    journal = save_journal(store, journal.after("rollback begun", stage="rolling back"))
    store.drop_columns([c.name for c in columns(journal.shared_dim)])
    store.put(SAMPLE, None)
    done = journal.after("rolled back: the old vectors alone", stage="rolled back", cursor=None)
    return save_journal(store, done)


def _refuse_newer(store: Store) -> None:
    """Refuse where rows have another shared vector than the one that was written there."""
    there = store.describe().added
    if VECTOR not in there or SUM not in there:
        return
    newer = 0
    for rows in store.stream([VECTOR, SUM]):
        sums = np.asarray(rows[SUM].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        known = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
        newer += int((known & damaged(sums, matrix(rows[VECTOR]))).sum())
    if newer:
        raise StoreError(
            f"{newer:,} rows were written with new vectors since the switch, and would lose them",
            where=store.name,
            step="finish, or roll back with --force",
        )


def journal_to_roll_back(store: Store, *, force: bool) -> Journal | None:
    """The journal; with `force`, None where it is lost or nobody can read it."""
    try:
        found = load_journal(store)
    except StoreError:
        if not force:
            raise
        return None
    if found is None and not force:
        lost = bool(store.describe().added)
        raise BadInput(
            "the journal of its migration is lost" if lost else "no migration was started",
            where=store.name,
            step="drop what it added with: crossfade migrate rollback STORE --force"
            if lost
            else "run: crossfade migrate start STORE UPGRADE",
        )
    return found


def _mend(store: Store, upgrade: Upgrade, journal: Journal) -> Work:
    """What is to be written of rows that came or changed while the columns change places.

    A row whose shared vector is not the one that was written is the application's own by now.
    """
    column = SharedColumn.of(upgrade, journal.space)

    def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
        batch = Batch.of(store, rows, journal.source)
        sums = np.asarray(rows[SUM].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        there = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
        own = there & (~batch.known | damaged(sums, matrix(rows[VECTOR])))
        made = lifted(column, journal, batch.take(~own))
        emptied = batch.take(batch.emptied & ~own)
        if not len(emptied):
            return made
        nothing = emptied.cleared(columns(journal.shared_dim))
        return nothing if made is None else one_batch(pa.Table.from_batches([made, nothing]))

    return work
