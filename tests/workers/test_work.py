"""Leases by the book: whatever workers do and whenever they die, all is done, and once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossfade.errors import WorkerLost
from crossfade.journal.work import Work, read_work

SIZE, STRETCHES, SECONDS = 10, 7, 5.0


def laid_out(goal: int) -> Work:
    return Work(
        migration="m", order="o", size=SIZE, stretches=STRETCHES, goal=goal, filled=0, since=0.0
    )


class Row:
    """The rows of a store, and who has written them."""

    def __init__(self) -> None:
        self.filled: set[int] = set()

    def due(self, stretch: int) -> list[int]:
        rows = range(SIZE * stretch, SIZE * (stretch + 1) if stretch < STRETCHES else 80)
        return [row for row in rows if row not in self.filled]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 80),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(1, 4)), max_size=300),
)
def test_together_they_fill_the_goal_and_no_more(goal, moves):
    """Workers take turns as chance has it: they write some rows, finish, die or are late."""
    work, rows, now, turns = laid_out(goal), Row(), 0.0, iter(range(1, 100_000))
    written: dict[str, int] = {}

    def step(mark: str, what: int, some: int) -> None:
        nonlocal work
        work = read_work(work.model_dump_json(), "here") or work
        worker = work.workers.get(mark)
        if worker is None:
            work.join(mark, mark, now, SECONDS)
        elif what == 5:
            # It dies: nobody hears of it again under this mark.
            worker.until = now - 1
        elif worker.lease is None:
            work.claim(mark, next(turns))
            written[mark] = 0
        else:
            lease = worker.lease
            due = rows.due(lease.stretch)[: min(some, lease.room - lease.announced)]
            work.renew(mark, now, SECONDS)
            if due:
                work.announce(mark, next(turns), len(due))
                if what != 4:
                    rows.filled |= set(due)
                    written[mark] += len(due)
                else:
                    # Announced, and not written.
                    worker.until = now - 1
            else:
                whole = not rows.due(lease.stretch)
                kept = {"filled": written[mark], "written": written[mark], "spent": 0.0}
                work.settle(mark, next(turns), whole=whole, **kept)
        assert work.filled <= goal
        assert len(rows.filled) <= goal

    for mark, what, some in moves:
        now += 0.1
        step(str(mark), what, some)
    # Then one that never dies does the rest.
    for _ in range(400):
        now += 1.0
        work.bury(now)
        if work.recount and not work.leased:
            work.filled, work.recount = len(rows.filled), False
        step("last", 0, 4)
    assert len(rows.filled) == goal
    assert work.filled == goal


def test_a_step_that_is_asked_for_twice_is_done_once():
    work = laid_out(80)
    work.join("a", "a", 0.0, SECONDS)
    first = work.claim("a", 1)
    assert work.claim("a", 1) == first
    assert work.next == 1
    for _ in range(2):
        work.announce("a", 2, 4)
        work.grant("a", 3, least=1.0, spent=0.0, most=10.0)
    assert work.workers["a"].lease.announced == 4
    granted = work.workers["a"].granted
    assert 1.0 <= granted < 10.0
    for _ in range(2):
        work.settle("a", 4, filled=4, written=4, whole=True, spent=0.5)
    assert (work.filled, work.returned, work.committed) == (4, [], 0.5)


def test_a_worker_that_is_taken_for_dead_is_told_so():
    work = laid_out(80)
    work.join("a", "a", 0.0, SECONDS)
    work.claim("a", 1)
    work.grant("a", 2, least=2.0, spent=0.0, most=None)
    assert work.bury(SECONDS + 1) == ["a"]
    assert work.returned == [0]
    # What it was given counts as spent: nobody knows better.
    assert work.spent == work.ended[0].died * 32.0
    for step in (
        lambda: work.renew("a", 9.0, SECONDS),
        lambda: work.announce("a", 3, 1),
        lambda: work.claim("a", 3),
        lambda: work.settle("a", 3, filled=0, written=0, whole=True, spent=0.0),
    ):
        with pytest.raises(WorkerLost, match="its part is another's"):
            step()


def test_all_together_get_no_more_money_than_there_is():
    work = laid_out(80)
    for mark in "abc":
        work.join(mark, mark, 0.0, SECONDS)
    for turn in range(1, 200):
        for mark in "abc":
            work.grant(mark, turn, least=0.07, spent=0.0, most=5.0)
    assert work.committed <= 5.0 + 1e-9
    assert work.committed > 4.9
