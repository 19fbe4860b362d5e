"""For how long a promotion keeps rows of the application locked."""

from __future__ import annotations

from crossfade.stores.postgres.promote import Pace

MOMENT, CHEAP, DEAR = 0.05, 0.00003, 0.004


def test_rows_that_cost_a_hundred_times_the_others_come_unannounced():
    # Stretches of a table, as they are gone through: rows that move to another page, and with it
    # into every index, then many that find room on their own.
    pace, locked = Pace(), []
    for _ in range(5):
        for cost, left in ((DEAR, 1000), (CHEAP, 20_000)):
            while left > 0:
                rows = min(left, pace.rows)
                locked.append(0.001 + rows * cost)
                pace.measure(rows, locked[-1])
                left -= rows
    assert max(locked) < 4 * MOMENT


def test_rows_that_are_all_cheap_are_brought_in_large_batches():
    pace = Pace()
    for _ in range(50):
        pace.measure(pace.rows, 0.001 + pace.rows * CHEAP)
    assert pace.rows > 1000
