"""A backfill by several processes at a time, on one machine or on many.

The first that comes lays the work out, alone: it makes the order, as ever, and writes into the
journal what is to be done. Then it works like those that join it. Each leases a stretch of the
order, fills what is due there as a backfill alone does, and leases the next. The last that leaves
puts what was done into the journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from crossfade.backfill.plan import Plan
from crossfade.embedders import BaseEmbedder
from crossfade.errors import BadInput, StoreBusy, StoreError, WorkerLost
from crossfade.journal.columns import FILLED, VECTOR, count_states
from crossfade.journal.journal import Backfill, Journal, need_journal, save_journal
from crossfade.journal.work import Lease, Work
from crossfade.migration.backfill import Filled, Placed, Run, begun
from crossfade.migration.forward import Progress, Stop
from crossfade.migration.order import Stretches, hash_order, hash_plan, late_rows
from crossfade.migration.preparation import Prepared, Wanted, check_source, prepare
from crossfade.migration.workers import LEASE_SECONDS, Member, alone
from crossfade.stores import Joinable
from crossfade.upgrade import Upgrade

log = logging.getLogger(__name__)
# To make an order for a large store takes a while, and those that come meanwhile wait for it.
_UNTIL_LAID_OUT = 600.0
_LOOK_UP = 1.0


def fill_together(
    store: Joinable,
    upgrade: Upgrade,
    embedder: BaseEmbedder,
    wanted: Wanted,
    name: str,
    *,
    seconds: float = LEASE_SECONDS,
    progress: Progress | None = None,
    stop: Stop = lambda: False,
) -> Filled:
    """Backfill as the worker `name`, until nothing is left to do or this one has done enough.

    A worker that was away for longer than its lease, which is for `seconds`, joins the others again
    if they are still at it; `WorkerLost` if they are not, for it is not known what came after.
    """
    begin, done = time.monotonic(), Filled()
    migration, lost = need_journal(store).migration, None
    while True:
        member = Member(store, name, seconds=seconds)
        if lost is None:
            ready = _enter(member, upgrade, embedder, wanted, progress, stop)
        else:
            ready, work = None, member.join()
            if work is None or work.migration != migration:
                member.leave()
                raise lost
        try:
            with member.at_work():
                at_work = _AtWork(member, upgrade, ready, embedder, wanted, done, progress, stop)
                with embedder.sharing_spend(member.purse) as member.spent:
                    done.why = at_work.fill()
            break
        except WorkerLost as error:
            lost = error
            log.warning("%s: %s: %s", store.name, name, lost.cause)
    done.rows, done.filled = store.describe().rows, count_states(store)[FILLED]
    done.seconds = time.monotonic() - begin
    if member.last:
        # Somebody may have come since, or another step: then the rest is theirs.
        with suppress(StoreBusy):
            _wind_up(store)
    return done


def _enter(
    member: Member,
    upgrade: Upgrade,
    embedder: BaseEmbedder,
    wanted: Wanted,
    progress: Progress | None,
    stop: Stop,
) -> Prepared | None:
    """Join those that are at work, or lay the work out for others to join; None is joined."""
    store, begin = member.store, time.monotonic()
    while True:
        need_journal(store).require("backfill", store.name)
        if member.join() is not None:
            return None
        try:
            with alone(store):
                ready = prepare(store, upgrade, need_journal(store), embedder, wanted, progress)
                journal = save_journal(store, begun(ready))
                member.open(_laid_out(store, journal, ready.task, wanted.batch))
                return replace(ready, journal=journal)
        except StoreBusy:
            # Most likely another lays it out at this moment.
            if stop() or time.monotonic() - begin > _UNTIL_LAID_OUT:
                raise
            time.sleep(_LOOK_UP / 2)


def _laid_out(store: Joinable, journal: Journal, task: Backfill, size: int) -> Work:
    return Work(
        migration=journal.migration,
        order=hash_order(Path(task.order_file)),
        size=size,
        stretches=-(-task.order_rows // size),
        goal=task.goal(store.describe().rows),
        filled=count_states(store)[FILLED],
        spent=journal.spent,
    )


def _joined(
    store: Joinable, upgrade: Upgrade, embedder: BaseEmbedder, wanted: Wanted, work: Work
) -> Prepared:
    """What the others do, found and checked on this machine."""
    journal = need_journal(store)
    journal.require("backfill", store.name)
    task = journal.backfill
    if task is None or journal.migration != work.migration:
        raise StoreError("its workers are of another migration", where=store.name)
    if wanted.share is not None and wanted.share != task.target:
        raise BadInput(
            f"its workers fill a share of {task.target:g}, and this one is asked for "
            f"{wanted.share:g}",
            where=store.name,
            step="leave --share out, or stop the others first",
        )
    check_source(store, journal, embedder, wanted)
    folder = Path(task.plan_folder) if wanted.plan is None else wanted.plan
    if hash_plan(folder) != task.plan:
        raise BadInput(
            "is not the plan of the workers that are at work",
            where=folder,
            step="name the same plan, or a copy of it",
        )
    return Prepared(journal, Plan.load(folder, upgrade), task)


def _order_file(ready: Prepared, wanted: Wanted, work: Work) -> Path:
    """The file of ids, where it was made or in the plan's folder as this machine sees it."""
    made = Path(ready.task.order_file)
    places = [made]
    if wanted.plan is not None:
        places += [wanted.plan / made.name, wanted.plan / "orders" / made.name]
    found = next((place for place in places if place.is_file()), None)
    if found is None or hash_order(found) != work.order:
        raise BadInput(
            "is not here" if found is None else "is another order than that of the other workers",
            where=made if found is None else found,
            step="put the plan's folder where every machine sees it, or copy all of it here once "
            "the first worker has begun, and name it with --plan",
        )
    return found


class _AtWork:
    """One stretch after the other."""

    def __init__(
        self,
        member: Member,
        upgrade: Upgrade,
        ready: Prepared | None,
        embedder: BaseEmbedder,
        wanted: Wanted,
        done: Filled,
        progress: Progress | None,
        stop: Stop,
    ) -> None:
        self.member, self.store, self.embedder = member, member.store, embedder
        self.stop = stop
        work = member.look()
        if ready is None:
            ready = _joined(self.store, upgrade, embedder, wanted, work)
        self.ready, self.size, self.done = ready, work.size, done
        self.order = _order_file(ready, wanted, work)
        self.stretches = Stretches(self.order)
        self.work, self.first, self.before = work, work.done, 0
        self.run = Run(
            self.store,
            upgrade,
            ready,
            ready.journal,
            done,
            wanted,
            0,
            None if progress is None else self._progress(progress),
            lambda: stop() or member.lost.is_set(),
        )
        self.run.announce = member.announce

    def fill(self) -> str:
        """Until there is nothing left, or this worker is to stop; gives why it ended."""
        while True:
            lease, self.work = self.member.claim()
            if lease is not None:
                self._fill(lease)
            elif not self.work.leased:
                if not self.work.recount:
                    break
                # Nobody writes now. What the dead had announced and not written is still to do.
                self.member.recount(count_states(self.store)[FILLED])
            elif self.stop():
                self.run.why, self.done.stopped = "the user's stop", True
            else:
                # What others have may come back, should they die or be stopped.
                time.sleep(min(_LOOK_UP, self.member.seconds / 8))
            if self.run.why:
                return self.run.why
        task = self.ready.task
        if self.work.filled < self.work.goal:
            return "every row of the order is done"
        return f"the share of {task.target:.0%}"

    def _fill(self, lease: Lease) -> None:
        run, done = self.run, self.done
        self.before, written = done.filled, done.written
        run.goal = done.filled + lease.room

        def settle(whole: bool) -> None:
            self.member.settle(
                filled=done.filled - self.before, written=done.written - written, whole=whole
            )

        try:
            whole = run.all_of(self.embedder, self._rows(lease), free=False)
        except WorkerLost:
            raise
        except BaseException:
            with suppress(StoreError):
                settle(whole=False)
            raise
        if self.member.lost.is_set():
            run.why, done.stopped = "", False
            raise WorkerLost("it was not heard of for too long", where=self.store.name)
        settle(whole)

    def _rows(self, lease: Lease) -> Iterator[Placed]:
        if lease.stretch == self.work.stretches:
            return late_rows(self.store, self.order, self.ready.task.order_rows)
        first = lease.stretch * self.size
        return self.stretches.between(first, first + self.size)

    def _progress(self, progress: Progress) -> Progress:
        """Of all workers, as far as this one knows of the others."""

        def tell(_: int, __: int) -> None:
            own = self.done.filled - self.before
            progress(self.work.done - self.first + own, max(0, self.work.goal - self.first))

        return tell


def _wind_up(store: Joinable) -> None:
    """What the last that leaves does, alone."""
    with alone(store) as work:
        if work is None or not work.written:
            return
        store.build_index(VECTOR)
        journal = need_journal(store)
        seconds = max((one.seen for one in work.ended), default=work.since) - work.since
        rate = journal.rate | {"backfill": work.written / max(seconds, 1e-9)}
        told = f"{work.written:,} rows backfilled by {len(work.ended)} workers"
        save_journal(store, journal.after(told, rate=rate))
