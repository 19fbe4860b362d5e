"""The way back: everything that a migration added is dropped, and the old vectors stay."""

from __future__ import annotations

import numpy as np

from crossfade.errors import BadInput, StoreError
from crossfade.journal.columns import SUM, VECTOR, columns
from crossfade.journal.journal import KEY, Journal, load_journal, save_journal
from crossfade.migration.batch import damaged
from crossfade.search.sampling import KEY as SAMPLE
from crossfade.stores import Store
from crossfade.stores.rows import matrix


def roll_back(store: Store, journal: Journal | None, *, force: bool = False) -> Journal | None:
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
    if journal.after_step("rollback"):
        return journal
    if journal.after_step("finish"):
        raise BadInput(
            "the old vectors are gone: what is finished cannot be rolled back",
            where=store.name,
            step="restore a backup, or migrate back with an upgrade in the other direction",
        )
    if journal.within("finish"):
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
            step="finish, or roll back to the old vectors of these rows with --force",
        )


def find_journal(store: Store, *, force: bool) -> Journal | None:
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
