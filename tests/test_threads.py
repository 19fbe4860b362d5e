"""Several things at once: none goes on when it is over, and a child has threads of its own."""

from __future__ import annotations

import os
import threading
import time
import warnings

import pytest

from crossfade.threads import all_at_once, at_once, every


def test_they_wait_for_each_other():
    # Each lets the other go on: one after the other would never end.
    first, second = threading.Event(), threading.Event()

    def one() -> bool:
        first.set()
        return second.wait(10)

    def other() -> bool:
        second.set()
        return first.wait(10)

    assert at_once(one, other) == (True, True)


def test_all_of_several_are_under_way_together():
    meeting = threading.Barrier(4)
    assert all_at_once([lambda n=n: (meeting.wait(10), n)[1] for n in range(4)]) == [0, 1, 2, 3]
    assert all_at_once([]) == []


def test_neither_goes_on_when_one_has_failed():
    ended = []

    def slowly() -> None:
        time.sleep(0.1)
        ended.append(1)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        at_once(fail, slowly)
    with pytest.raises(ValueError, match="no"):
        at_once(slowly, fail)
    assert ended == [1, 1]


def test_a_child_has_threads_of_its_own():
    at_once(int, int)
    with warnings.catch_warnings():
        # Since 3.12 Python warns of a fork with threads about; that it works is what is asked here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if at_once(int, int) == (0, 0) else 1)
    until, (done, status) = time.monotonic() + 20, (0, 0)
    while done == 0 and time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if done == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == child
    assert os.waitstatus_to_exitcode(status) == 0


def test_something_is_done_again_and_again_until_it_says_no():
    times, enough = [], threading.Event()

    def act() -> bool:
        times.append(time.monotonic())
        if len(times) == 3:
            enough.set()
        return len(times) < 3

    with every(0.01, act):
        assert enough.wait(20)
        time.sleep(0.1)
    assert len(times) == 3


def test_nothing_is_done_again_after_its_end():
    under_way, ended = threading.Event(), []

    def slowly() -> None:
        under_way.set()
        time.sleep(0.1)
        ended.append(1)

    with pytest.raises(ValueError, match="no"), every(0.01, slowly):
        assert under_way.wait(20)
        raise ValueError("no")
    done = len(ended)
    assert done >= 1
    time.sleep(0.15)
    assert len(ended) == done
