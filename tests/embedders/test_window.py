"""How many requests an endpoint takes at a time is found out, and what goes wrong is logged."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
from tests.embedders.server import Server, model

from crossfade.embedders import Endpoint, EndpointSettings
from crossfade.embedders.window import Window

TEXTS = [f"text number {n} of some" for n in range(400)]


class Endpoints:
    """An endpoint by the clock: `slots` requests are worked on at a time, each for a second."""

    def __init__(self, slots: int) -> None:
        self.slots, self.now = slots, 0.0

    def clock(self) -> float:
        return self.now

    def answer(self, window: Window, requests: int) -> None:
        """Some requests, as many at a time as the window says."""
        window.begin()
        while requests > 0:
            some = min(window.size, requests)
            self.now += max(1.0, some / self.slots)
            requests -= some
            for _ in range(some):
                window.widen(8)


@pytest.mark.parametrize("slots", [1, 4, 10, 40])
def test_it_grows_as_long_as_more_is_answered(slots):
    endpoint = Endpoints(slots)
    window = Window(64, seeks=True, clock=endpoint.clock)
    endpoint.answer(window, 60 * slots + 200)
    assert slots / 2 <= window.size <= 2 * slots + 1


def test_what_an_endpoint_can_do_later_is_found_too():
    endpoint = Endpoints(4)
    window = Window(64, seeks=True, clock=endpoint.clock)
    endpoint.answer(window, 500)
    assert window.size <= 9
    endpoint.slots = 24
    endpoint.answer(window, 5000)
    assert window.size >= 16


def test_calls_that_are_too_short_to_tell_change_nothing():
    endpoint = Endpoints(4)
    window = Window(64, seeks=True, clock=endpoint.clock)
    endpoint.answer(window, 500)
    size = window.size
    for _ in range(20):
        endpoint.now += 100.0
        endpoint.answer(window, 2)
    assert window.size == size


def test_a_refusal_halves_it_and_it_grows_slowly_after_that():
    endpoint = Endpoints(64)
    window = Window(64, seeks=True, clock=endpoint.clock)
    endpoint.answer(window, 200)
    size = window.size
    window.halve(window.turn)
    assert window.size == size // 2
    endpoint.answer(window, 2 * window.size)
    assert size // 2 < window.size <= size // 2 + 2


class Slots(Server):
    """Works on some requests at a time, and refuses or keeps waiting what comes beyond them."""

    def __init__(self, slots: int, *, refuses: bool) -> None:
        super().__init__()
        self.keeps = True
        self.slots, self.refuses, self.refused = threading.Semaphore(slots), refuses, 0

    def answer(self, handler):
        if not self.slots.acquire(blocking=not self.refuses):
            handler.rfile.read(int(handler.headers["Content-Length"]))
            self.refused += 1
            error = {"error": {"message": f"too many requests: {TEXTS[0]} for sk-secret"}}
            self.send(handler, error, 429, [("Retry-After", "0.02")])
            return
        try:
            time.sleep(0.02)
            super().answer(handler)
        finally:
            self.slots.release()


@pytest.fixture
def serving():
    started = []

    def start(*args, **kwargs):
        server = Slots(*args, **kwargs)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def test_a_real_endpoint_is_asked_as_much_as_it_is_good_for(serving):
    server = serving(6, refuses=False)
    endpoint = Endpoint(server.url, EndpointSettings(model="tiny", batch_size=2))
    try:
        found = endpoint.embed(list(range(len(TEXTS))), TEXTS)
        assert np.array_equal(found, model(TEXTS))
        # On a machine that others use too it does not pay to ask as much as could be.
        assert endpoint._window.size >= 2
        assert server.most_under_way >= 3
    finally:
        endpoint.close()


def test_one_that_refuses_is_asked_less_and_the_log_tells_without_secrets(serving, caplog):
    server = serving(3, refuses=True)
    settings = EndpointSettings(
        model="tiny", batch_size=4, first_wait=0.02, retries=50, key_env="KEY"
    )
    endpoint = Endpoint(server.url, settings, environment={"KEY": "sk-secret"})
    try:
        with caplog.at_level(logging.INFO, "crossfade"):
            found = endpoint.embed(list(range(len(TEXTS))), TEXTS)
        assert np.array_equal(found, model(TEXTS))
        # Each answered once: what was refused was sent again, and no more than that.
        assert len(server.requests) == 100
        assert 0 < server.refused < 100
        assert endpoint._window.size <= 8
    finally:
        endpoint.close()
    retries = [one.getMessage() for one in caplog.records if "answered 429; try" in one.message]
    assert len(retries) == server.refused
    assert any("requests at a time from now on" in one.message for one in caplog.records)
    assert all(one.name == "crossfade.embedders.endpoint" for one in caplog.records)
    assert "sk-secret" not in caplog.text and "text number" not in caplog.text


def test_a_number_that_is_given_is_kept_to(serving):
    server = serving(2, refuses=False)
    endpoint = Endpoint(server.url, EndpointSettings(model="tiny", batch_size=8, concurrency=5))
    try:
        endpoint.embed(list(range(len(TEXTS))), TEXTS)
        # A machine that others use too may never have them all under way.
        assert 1 < server.most_under_way <= 5
    finally:
        endpoint.close()


def test_no_answer_in_time_is_too_much_as_well(serving):
    server = serving(64, refuses=False)
    server.plans = [None] * 20 + [lambda *_: time.sleep(1.5)]
    settings = EndpointSettings(model="tiny", batch_size=2, timeout=1.0, first_wait=0.01)
    endpoint = Endpoint(server.url, settings)
    try:
        endpoint.embed(list(range(100)), TEXTS[:100])
        assert endpoint._window.turn == 1
    finally:
        endpoint.close()
