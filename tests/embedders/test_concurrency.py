"""Several requests at a time: as many as the endpoint bears, and nothing is lost or overspent."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedders.server import DIM, Server, fails, model

from crossfade.embedders import Endpoint, EndpointSettings, embed_parts_checked
from crossfade.embedders.spend import Spend
from crossfade.embedders.window import Window
from crossfade.errors import BadInput, BudgetSpent, EmbedderError, MissingExtra

TEXTS = [f"text number {number} is about topic {number % 7}" for number in range(40)]
IDS = [f"id-{number}" for number in range(40)]


@pytest.fixture
def endpoint(server, clock):
    def make(**settings):
        settings = {"model": "tiny", "batch_size": 2, "concurrency": 4} | settings
        return Endpoint(
            server.url,
            EndpointSettings(**settings),
            sleep=clock.sleep,
            clock=clock.clock,
            environment={},
        )

    return make


def together(count, *plans):
    """So many requests that are answered when all of them are there, each by its own plan."""
    barrier = threading.Barrier(count)

    def waiting(plan):
        def answer(server, handler, asked):
            barrier.wait(30)
            if plan is None:
                server.send(handler, server.embedded(asked))
            else:
                plan(server, handler, asked)

        return answer

    return [waiting(plan) for plan in (*plans, *[None] * (count - len(plans)))]


def collected(parts, into=None):
    found = {} if into is None else into
    for turn in parts:
        for rows, vectors in turn:
            found |= dict(zip(rows.tolist(), vectors, strict=True))
    return found


def test_as_many_as_were_allowed_are_under_way_and_answers_keep_their_order(server, endpoint):
    # The first is alone, and every good answer makes room for one more.
    server.plans = [None] * 3 + together(4) + together(4)
    assert np.array_equal(endpoint().embed(IDS, TEXTS), model(TEXTS))
    assert server.most_under_way == 4
    assert len(server.requests) == 20


def test_the_first_request_is_alone(server, endpoint):
    server.plans = [fails(401)] * 9
    with pytest.raises(EmbedderError, match="answered 401"):
        endpoint(concurrency=16).embed(IDS, TEXTS)
    assert len(server.requests) == 1


def test_one_at_a_time_is_one_at_a_time(server, endpoint):
    assert np.array_equal(endpoint(concurrency=1).embed(IDS, TEXTS), model(TEXTS))
    assert server.most_under_way == 1
    assert [asked["input"][0] for asked in server.requests] == TEXTS[::2]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_connections_are_kept(clock, concurrency):
    server = Server()
    server.keeps = True
    server.start()
    settings = EndpointSettings(model="tiny", batch_size=2, concurrency=concurrency)
    endpoint = Endpoint(server.url, settings, environment={})
    for _ in range(2):
        assert np.array_equal(endpoint.embed(IDS, TEXTS), model(TEXTS))
    endpoint.close()
    assert len(server.requests) == 40
    assert 1 <= len(server.connections) <= concurrency
    assert endpoint.embed(IDS[:1], TEXTS[:1]).shape == (1, DIM), "closed, it can be asked again"
    endpoint.close()
    server.stop()


def test_an_endpoint_that_is_asked_too_much_is_asked_half_as_much(server, endpoint, clock):
    def busy(server, handler, asked):
        server.most_under_way = 0
        fails(429, headers=[("Retry-After", "5")])(server, handler, asked)

    server.plans = [None] * 3 + together(4, busy, busy, busy, busy)
    few = slice(0, 14)
    assert np.array_equal(endpoint().embed(IDS[few], TEXTS[few]), model(TEXTS[few]))
    assert server.most_under_way <= 2
    assert len(server.requests) == 3 + 4 + 4
    assert sum(clock.slept) == pytest.approx(5.0), "all of them wait, and together"


def test_many_refusals_of_one_moment_count_once():
    window = Window(8)
    for _ in range(20):
        window.widen()
    turn = window.turn
    for _ in range(8):
        window.halve(turn)
    assert window.size == 4
    for _ in range(4):
        window.widen()
    assert window.size == 4, "room is made slowly from there"
    for _ in range(2):
        window.widen()
    assert window.size == 5
    for _ in range(9):
        window.halve(window.turn)
    assert window.size == 1


def test_a_failure_keeps_what_the_others_brought(server, endpoint):
    server.plans = [None] * 3 + together(4, fails(400, "no")) + [fails(500)] * 99
    found = {}
    with pytest.raises(EmbedderError, match="answered 400: no"):
        collected(embed_parts_checked(endpoint(), IDS, TEXTS, DIM), into=found)
    refused = server.requests[3]["input"]
    asked = [text for request in server.requests[:7] for text in request["input"]]
    kept = [TEXTS[row] for row in found]
    # What was sent as the others came may have failed as well: it is not tried again.
    assert set(asked) - set(kept) <= set(refused)
    for row, vector in found.items():
        assert np.array_equal(vector, model([TEXTS[row]])[0])


def test_a_bad_vector_keeps_what_the_others_brought(server, endpoint):
    def zeros(server, handler, asked):
        answer = server.embedded(asked)
        answer["data"][0]["embedding"] = [0.0] * DIM
        server.send(handler, answer)

    server.plans = [None] * 3 + together(4, zeros)
    few, found = slice(0, 14), {}
    with pytest.raises(EmbedderError, match="is all zeros"):
        collected(embed_parts_checked(endpoint(), IDS[few], TEXTS[few], DIM), into=found)
    assert len(found) == 12


def test_nothing_more_is_begun_when_it_is_enough(server, endpoint):
    found = collected(endpoint().embed_parts(IDS, TEXTS, lambda: True))
    assert sorted(found) == [0, 1], "but for the first"
    assert len(server.requests) == 1


def test_one_who_stops_listening_leaves_nothing_behind(server, endpoint):
    server.plans = [None] * 3
    asked = endpoint(cost_per_million_tokens=1e6)
    parts = asked.embed_parts(IDS, TEXTS)
    next(parts)
    parts.close()
    before = asked.spent
    assert np.array_equal(asked.embed(IDS[:2], TEXTS[:2]), model(TEXTS[:2]))
    assert asked.spent == before + 14, "what was lost on the way counts, and is not counted again"


def test_the_cap_holds_with_several_under_way_and_is_used_up(server, endpoint):
    asked, kept, found = endpoint(cost_per_million_tokens=1e6, max_spend=500.0), [], {}
    server.plans = [None, *together(2)]
    with asked.keeping_spend(0.0, kept.append), pytest.raises(BudgetSpent):
        collected(asked.embed_parts(IDS * 9, TEXTS * 9), into=found)
    told = sum(len(text.split()) for request in server.requests for text in request["input"])
    assert told <= asked.spent == kept[-1] <= max(kept) <= 500.0
    assert server.most_under_way >= 2
    most = max(len(text) for text in TEXTS) + 16
    assert 500.0 - asked.spent < most, "it went on as long as one more text could be paid"
    assert sorted(found) == list(range(len(found))), "those that were sent, from the first"


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.floats(0, 1), st.integers(0, 5), st.booleans()),
        max_size=30,
    ),
    st.floats(0, 1e-3),
)
def test_with_any_number_of_open_requests_no_more_is_charged_than_is_counted(asked, cap):
    spend, under_way, charged = Spend(1.0, cap), [], 0.0
    for text, share, settled, answers in asked:
        try:
            reserved = spend.reserve([text], "x")
        except BudgetSpent:
            pass
        else:
            tokens = share * (len(text.encode("utf-8", "surrogatepass")) + 16)
            charged += tokens
            under_way.append((reserved, tokens, answers))
        for one, tokens, answered in under_way[:settled]:
            if answered:
                spend.settle(one, tokens)
            else:
                spend.lose(one)
        del under_way[:settled]
        assert charged * 1e-6 <= spend.spent + 1e-12
    assert charged * 1e-6 <= cap + 1e-12


def test_a_price_that_turns_out_higher_holds_for_those_under_way_too():
    spend = Spend(1e6, 1000.0)
    first, second = (spend.reserve(["word"], "x") for _ in range(2))
    assert spend.spent == 40.0
    spend.settle(first, 60.0)
    assert spend.spent == 120.0, "three tokens for a byte"
    spend.release(second)
    assert spend.spent == 60.0


def test_without_aiohttp_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(MissingExtra, match=r"needs aiohttp.*pip install 'crossfade\[endpoint\]'"):
        Endpoint("https://example.com/v1", EndpointSettings(model="m"))


def test_no_request_at_a_time_makes_no_sense():
    with pytest.raises(BadInput, match="concurrency is 0"):
        EndpointSettings(model="m", concurrency=0)
