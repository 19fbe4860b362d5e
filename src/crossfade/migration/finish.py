"""The last step: the shared vectors alone are kept, once all is proven."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput, NotProven
from crossfade.journal.columns import KNOWN, SUM, VECTOR, columns, count_states
from crossfade.journal.journal import Journal, save_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch, damaged
from crossfade.migration.checks import check_obstacles, refuse_duplicates
from crossfade.migration.forward import Lift, Progress
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
    if journal.after_step("finish"):
        if keep_old:
            raise BadInput("the old vectors are gone", where=store.name)
        return journal
    if keep_old and journal.within("finish"):
        raise BadInput(
            "is being finished without its old vectors",
            where=store.name,
            step="run finish again to end that, or rollback",
        )
    journal.require("finish", store.name)
    check_obstacles(store, "finish")
    refuse_duplicates(store)
    if not journal.within("finish"):
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


def _mend(store: Store, upgrade: Upgrade, journal: Journal) -> Work:
    """What is to be written of rows that came or changed while the columns change places.

    A row whose shared vector is not the one that was written is the application's own by now.
    """
    lift = Lift.of(store, SharedColumn.of(upgrade, journal.space, journal.lift), journal)

    def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
        batch = Batch.of(store, rows, journal.source)
        sums = np.asarray(rows[SUM].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        there = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
        own = there & (~batch.known | damaged(sums, matrix(rows[VECTOR])))
        made = lift.made_of(batch.take(~own))
        emptied = batch.take(batch.emptied & ~own)
        if not len(emptied):
            return made
        nothing = emptied.cleared(columns(journal.shared_dim))
        return nothing if made is None else one_batch(pa.Table.from_batches([made, nothing]))

    return work
