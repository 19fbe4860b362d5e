"""Who fills what, where several processes fill one store: kept in the store, beside the journal.

The plan's order is cut into stretches of equal length. A worker leases one stretch at a time, and
with it a number of rows that it may fill there, so that all of them together stop at the planned
share. A lease runs out unless its worker is heard of. The stretch then goes back to where it came
from, and whoever takes it finds what was filled of it in the rows themselves.

All of this is one small value, however many rows there are. Every change of it is one step in the
store, and may be asked for twice by a worker whose first answer was lost: each bears the number of
its turn, and is done once.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from crossfade.errors import StoreError, WorkerLost

KEY = "work"
# Those that have left or died: enough to see what happened, bounded whatever happens.
_KEPT = 50


class Lease(BaseModel):
    """A stretch of the order in the hands of a worker.

    `room` rows may be filled, and `announced` may have been: they are announced before they are
    written, so that a death never makes them fewer than they are.
    """

    model_config = ConfigDict(extra="forbid")
    stretch: int
    room: int
    announced: int = 0


class Worker(BaseModel):
    """One process, from its joining to its leaving."""

    model_config = ConfigDict(extra="forbid")
    name: str
    since: float
    seen: float
    until: float
    turn: int = 0
    lease: Lease | None = None
    rows: int = 0
    granted: float = 0.0
    """Money that it may spend, and counts as spent if it dies."""
    spent: float = 0.0


class Ended(BaseModel):
    """A worker that is at work no more."""

    model_config = ConfigDict(extra="forbid")
    name: str
    rows: int
    seconds: float
    seen: float
    died: bool


class Work(BaseModel):
    """What there is to do, and who does it."""

    model_config = ConfigDict(extra="forbid")
    migration: str
    order: str
    """The hash of the file of the order: places are the same for all."""
    size: int
    """Rows of a stretch."""
    stretches: int
    """Of the order; one more is for rows that it does not know."""
    goal: int
    filled: int
    since: float = 0.0
    next: int = 0
    returned: list[int] = []
    spent: float = 0.0
    """By those that have ended, and before."""
    written: int = 0
    recount: bool = False
    """Whether `filled` may be too high: a worker died between announcing rows and writing them."""
    workers: dict[str, Worker] = {}
    ended: list[Ended] = []

    def join(self, mark: str, name: str, now: float, seconds: float) -> None:
        """One more worker."""
        if mark not in self.workers:
            self.workers[mark] = Worker(name=name, since=now, seen=now, until=now + seconds)

    def renew(self, mark: str, now: float, seconds: float) -> None:
        """It is alive."""
        worker = self._worker(mark)
        worker.seen, worker.until = now, now + seconds

    def bury(self, now: float) -> list[str]:
        """Take out those that were not heard of for too long; gives their marks."""
        dead = [mark for mark, worker in self.workers.items() if worker.until < now]
        for mark in dead:
            worker = self.workers[mark]
            if worker.lease is not None:
                self.filled += worker.lease.announced
                worker.rows += worker.lease.announced
                self.recount |= worker.lease.announced > 0
            worker.spent = worker.granted
            self._end(mark, died=True)
        return dead

    def claim(self, mark: str, turn: int) -> Lease | None:
        """The first stretch that nobody has, if rows may be filled that nobody has been given."""
        worker = self._worker(mark)
        if worker.turn >= turn:
            return worker.lease
        worker.turn = turn
        room = (
            self.goal
            - self.filled
            - sum(other.lease.room for other in self.workers.values() if other.lease is not None)
        )
        if room <= 0 or not (self.returned or self.next <= self.stretches):
            return None
        if self.returned:
            stretch = self.returned.pop(0)
        else:
            stretch, self.next = self.next, self.next + 1
        most = room if stretch == self.stretches else min(room, self.size)
        worker.lease = Lease(stretch=stretch, room=most)
        return worker.lease

    def announce(self, mark: str, turn: int, rows: int) -> None:
        """So many rows are to be written now."""
        worker = self._worker(mark)
        if worker.lease is None:
            raise WorkerLost("this worker has no lease")
        if worker.turn < turn:
            worker.turn = turn
            worker.lease.announced += rows

    def settle(
        self, mark: str, turn: int, *, filled: int, written: int, whole: bool, spent: float
    ) -> None:
        """The lease ends: so many rows were filled that were not; the rest, if any, is anyone's."""
        worker = self._worker(mark)
        if worker.turn >= turn or worker.lease is None:
            return
        worker.turn = turn
        self.filled += filled
        worker.rows += written
        worker.spent = worker.granted = spent
        if not whole:
            self._return(worker.lease.stretch)
        worker.lease = None

    def grant(
        self, mark: str, turn: int, *, least: float, spent: float, most: float | None
    ) -> None:
        """More money for a worker, of what all may spend together; perhaps not so much as asked.

        A part of what is left for each, so that few ask often and a death costs little.
        """
        worker = self._worker(mark)
        if worker.turn >= turn:
            return
        worker.turn = turn
        worker.spent = spent
        left = float("inf") if most is None else most - self.committed
        wanted = 16 * least if most is None else max(least, left / (8 * len(self.workers)))
        worker.granted += max(0.0, min(left, wanted))

    def leave(self, mark: str, spent: float) -> None:
        """It goes, and gives back what it has."""
        if mark in self.workers:
            self.workers[mark].spent = spent
            self._end(mark, died=False)

    @property
    def committed(self) -> float:
        """Money that is spent, or that somebody may be spending."""
        return self.spent + sum(worker.granted for worker in self.workers.values())

    @property
    def done(self) -> int:
        """Rows that are filled, or are just being."""
        leases = (worker.lease for worker in self.workers.values())
        return self.filled + sum(lease.announced for lease in leases if lease is not None)

    @property
    def leased(self) -> bool:
        """Whether any worker is at work."""
        return any(worker.lease is not None for worker in self.workers.values())

    def _worker(self, mark: str) -> Worker:
        if mark not in self.workers:
            raise WorkerLost("this worker was away too long, and its part is another's")
        return self.workers[mark]

    def _end(self, mark: str, *, died: bool) -> None:
        worker = self.workers.pop(mark)
        if worker.lease is not None:
            self._return(worker.lease.stretch)
        self.spent += worker.spent
        self.written += worker.rows
        ended = Ended(
            name=worker.name,
            rows=worker.rows,
            seconds=worker.seen - worker.since,
            seen=worker.seen,
            died=died,
        )
        self.ended = [*self.ended, ended][-_KEPT:]

    def _return(self, stretch: int) -> None:
        self.returned = sorted([*self.returned, stretch])


def read_work(text: str | None, where: object) -> Work | None:
    """The work that a store keeps; None if there is none."""
    if text is None:
        return None
    try:
        return Work.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"what it keeps of its workers is damaged ({str(error).splitlines()[0]})",
            where=where,
            step="was it written by another crossfade?",
        ) from None
