"""Work that leaves the processors to others."""

from __future__ import annotations

import time

from crossfade.migration.throttle import Throttle
from crossfade.threads import cores


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def test_the_processors_are_left_alone_for_most_of_the_time():
    begin, used = time.monotonic(), time.process_time()
    with Throttle(0.25).after(lambda: False):
        busy(0.1)
    used = time.process_time() - used
    assert used / (time.monotonic() - begin) / cores() <= 0.25 + 0.05


def test_what_runs_apart_is_not_counted():
    resting = Throttle(0.01)
    with resting.after(lambda: False), resting.apart():
        busy(0.2)
        end = time.monotonic()
    # A hundredth of the processors for 0.2 s of work would be a rest of many seconds.
    assert time.monotonic() - end < 0.2 / 0.01 / cores() / 2


def test_a_stop_ends_the_rest():
    begin = time.monotonic()
    with Throttle(0.0001).after(lambda: True):
        busy(0.1)
    assert time.monotonic() - begin < 0.1 / 0.0001 / cores() / 10


def test_all_of_the_processors_is_no_rest(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(AssertionError))
    with Throttle(1.0).after(lambda: False):
        busy(0.05)
