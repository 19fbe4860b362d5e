"""Several processes on one store: a worker's part among them, and steps that are taken alone."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from crossfade.errors import BadInput, StoreBusy, StoreError, WorkerLost
from crossfade.journal.journal import load_journal, save_journal
from crossfade.journal.work import KEY, Lease, Work, read_work
from crossfade.stores import Joinable, Store
from crossfade.threads import every

LEASE_SECONDS = 30.0
_LONGEST_NAME = 100
T = TypeVar("T")


def worker_name() -> str:
    """What a worker is called that was given no name: its machine and its process."""
    return f"{socket.gethostname()}:{os.getpid()}"[:_LONGEST_NAME]


def joinable(store: Store) -> Joinable:
    """The store, if several processes may fill it at a time."""
    if not isinstance(store, Joinable):
        raise BadInput(
            f"a {store.kind} store is filled by one process at a time",
            where=store.name,
            step="go without --join; stores on a server, such as pgvector and Qdrant, take several",
        )
    return store


class Member:
    """This process as a worker: its mark, its turns, and the thread that tells it is alive.

    A worker that cannot be heard of loses its place to another. It finds out before it writes, for
    every write is announced; `WorkerLost` is raised then.
    """

    def __init__(self, store: Joinable, name: str, *, seconds: float = LEASE_SECONDS) -> None:
        self.store, self.name, self.seconds = store, name, seconds
        self.mark = secrets.token_hex(8)
        self.spent: Callable[[], float] = lambda: 0.0
        """Asked for what this worker has spent since it joined."""
        self.lost = threading.Event()
        self.last = False
        """Whether nobody else was at work when it left."""
        self._granted = 0.0
        self._turn = 0
        self._turns = threading.Lock()

    def open(self, work: Work) -> None:
        """Lay out the work, with this as its first worker; only while the store is held alone."""

        def anew(_: str | None, now: float) -> str:
            made = work.model_copy(update={"since": now}, deep=True)
            made.join(self.mark, self.name, now, self.seconds)
            return made.model_dump_json()

        self.store.change(KEY, anew)

    def join(self) -> Work | None:
        """Become one of the workers; None where nobody is at work."""
        found: list[Work | None] = [None]
        dead: list[str] = []

        def joined(work: Work, now: float) -> None:
            dead[:] = work.bury(now)
            # The last may have died: then the work is laid out anew.
            found[0] = work if work.workers else None
            if work.workers:
                work.join(self.mark, self.name, now, self.seconds)

        if _changed(self.store, joined) is None:
            return None
        for mark in dead:
            self.store.disown(mark)
        return found[0]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold the store as a worker, and be heard of; leaves in the end."""

        def renew() -> bool:
            # A server that is away for a moment is no reason to give up.
            with suppress(StoreError):
                try:
                    self._change(lambda work, now: None)
                except WorkerLost:
                    self.lost.set()
            return not self.lost.is_set()

        try:
            with self.store.join(self.mark), every(self.seconds / 4, renew):
                yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Give back what it has; who comes next finds out if that does not work now."""
        with suppress(StoreError):
            left = _changed(self.store, lambda work, now: work.leave(self.mark, self.spent()))
            self.last = left is not None and not left.workers

    def look(self) -> Work:
        """All of it, as it is."""
        return self._change(lambda work, now: None)[1]

    def claim(self) -> tuple[Lease | None, Work]:
        """The next stretch, or none for now, or none any more: then nobody has one either."""
        turn = self._next()
        dead: list[str] = []

        def claim(work: Work, now: float) -> Lease | None:
            dead[:] = work.bury(now)
            lease = work.claim(self.mark, turn)
            return None if lease is None else lease.model_copy()

        lease, work = self._change(claim)
        for mark in dead:
            # What it has begun must not be written after what is begun now.
            self.store.disown(mark)
        return lease, work

    def announce(self, rows: int) -> None:
        """So many rows are about to be written; `WorkerLost` if they are another's by now."""
        turn = self._next()
        self._change(lambda work, now: work.announce(self.mark, turn, rows))

    def settle(self, *, filled: int, written: int, whole: bool) -> None:
        """The stretch is done, or as much of it as will be."""
        turn, spent = self._next(), self.spent()
        self._change(
            lambda work, now: work.settle(
                self.mark, turn, filled=filled, written=written, whole=whole, spent=spent
            )
        )
        self._granted = spent

    def recount(self, counted: int) -> None:
        """So many rows are filled, as nobody is at work: deaths may have made it look like more."""

        def correct(work: Work, now: float) -> None:
            if not work.leased:
                work.filled, work.recount = counted, False

        self._change(correct)

    def purse(self, cost: float, most: float | None) -> float:
        """Money for a request of this cost, of what all workers may spend together, `most`.

        Gives what this one has for now, which may be less.
        """
        spent = self.spent()
        if spent + cost > self._granted:
            turn, least = self._next(), spent + cost - self._granted
            _, work = self._change(
                lambda work, now: work.grant(self.mark, turn, least=least, spent=spent, most=most)
            )
            self._granted = work.workers[self.mark].granted
        return self._granted - spent

    def _next(self) -> int:
        with self._turns:
            self._turn += 1
            return self._turn

    def _change(self, change: Callable[[Work, float], T]) -> tuple[T, Work]:
        """Change the work, and be heard of by that."""
        made: list[T] = []

        def renewed(work: Work, now: float) -> None:
            work.renew(self.mark, now, self.seconds)
            made[:] = [change(work, now)]

        work = _changed(self.store, renewed)
        if work is None:
            raise WorkerLost("the work has ended without this worker", where=self.store.name)
        return made[0], work


@dataclass(frozen=True)
class WorkerStatus:
    """A worker as `status` shows it; `idle` is the time since it was last heard of.

    One that is `silent` is not heard of for longer than it may be: it has died, or sleeps.
    """

    name: str
    rows: int
    rate: float
    idle: float
    state: Literal["at work", "silent", "left", "died"]

    @property
    def alive(self) -> bool:
        return self.state == "at work"


@dataclass(frozen=True)
class Workers:
    """All that there is to tell of a store's workers."""

    at_work: list[WorkerStatus]
    spent: float

    @property
    def rate(self) -> float:
        """Rows in a second, by those that are alive."""
        return sum(one.rate for one in self.at_work if one.alive)


def look_at_workers(store: Store) -> Workers | None:
    """Who is at work; None where nobody has been since the last step. Nothing is changed."""
    if not isinstance(store, Joinable) or store.get(KEY) is None:
        return None
    times: list[float] = []

    def look(text: str | None, now: float) -> str | None:
        times[:] = [now]
        return text

    work = read_work(store.change(KEY, look), store.name)
    if work is None:
        return None
    now, found = times[0], []
    for one in work.workers.values():
        rows = one.rows + (0 if one.lease is None else one.lease.announced)
        rate = rows / max(one.seen - one.since, 1.0)
        found.append(
            WorkerStatus(
                one.name,
                rows,
                rate,
                max(0.0, now - one.seen),
                "at work" if one.until >= now else "silent",
            )
        )
    for gone in work.ended:
        rate = gone.rows / max(gone.seconds, 1.0)
        idle = max(0.0, now - gone.seen)
        state: Literal["died", "left"] = "died" if gone.died else "left"
        found.append(WorkerStatus(gone.name, gone.rows, rate, idle, state))
    return Workers(found, work.committed)


def refuse_workers(store: Store) -> None:
    """`StoreBusy` while workers are at work; those that have died are seen off."""
    if not isinstance(store, Joinable) or store.get(KEY) is None:
        return
    dead: list[str] = []

    def bury(work: Work, now: float) -> None:
        dead[:] = work.bury(now)

    work = _changed(store, bury)
    for mark in dead:
        store.disown(mark)
    if work is not None and work.workers:
        names = sorted(worker.name for worker in work.workers.values())
        some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        what = "a worker is" if len(names) == 1 else f"{len(names)} workers are"
        raise StoreBusy(
            f"{what} filling it ({some})",
            where=store.name,
            step="wait until they are done, or stop them; to fill it too, add --join",
        )


@contextmanager
def alone(store: Store) -> Iterator[Work | None]:
    """Hold the store for a step that one process takes; `StoreBusy` while workers are at work.

    What workers have left is put into the journal first, and given: what they have spent, how much
    they have filled.
    """
    refuse_workers(store)
    with store.lock():
        refuse_workers(store)
        yield _wound_up(store)


def _wound_up(store: Store) -> Work | None:
    if not isinstance(store, Joinable):
        return None
    text = store.get(KEY)
    if text is None:
        return None
    work = read_work(text, store.name)
    journal = None
    # One that nobody can read is for whoever asked for this step to see.
    with suppress(StoreError):
        journal = load_journal(store)
    if work is not None and journal is not None and journal.migration == work.migration:
        died = sum(one.died for one in work.ended)
        deaths = f", {died} of which died" * bool(died)
        told = f"{len(work.ended)} workers ended{deaths}"
        save_journal(store, journal.after(told, spent=work.spent))
    store.put(KEY, None)
    return work


def _changed(store: Joinable, change: Callable[[Work, float], Any]) -> Work | None:
    """Change the work as one step; None where there is none."""
    found: list[Work | None] = [None]

    def act(text: str | None, now: float) -> str | None:
        found[0] = work = read_work(text, store.name)
        if work is None:
            return None
        change(work, now)
        return work.model_dump_json()

    try:
        store.change(KEY, act)
    except WorkerLost as lost:
        raise WorkerLost(lost.cause, where=store.name, step="it may join again") from None
    return found[0]
