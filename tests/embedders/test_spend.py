"""The spend cap stops before it is passed, and what was done stands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedders.server import fails, model, slow

from crossfade.embedders import Endpoint, EndpointSettings
from crossfade.embedders.spend import Spend
from crossfade.errors import BudgetSpent, EmbedderError

TEXTS = ["one two three four"] * 4  # Four tokens each, as the server counts words.


@pytest.fixture
def endpoint(server, clock):
    def make(**settings):
        settings = {"model": "tiny", "batch_size": 4, "cost_per_million_tokens": 1e6} | settings
        return Endpoint(server.url, EndpointSettings(**settings), sleep=clock.sleep, environment={})

    return make


def test_the_cap_stops_before_the_request_that_would_pass_it(server, endpoint):
    paid = endpoint(max_spend=40.0)
    for _ in range(2):  # 16 each: a third would make 48.
        assert np.array_equal(paid.embed("abcd", TEXTS), model(TEXTS))
    assert paid.spend.spent == 32.0
    with pytest.raises(BudgetSpent) as raised:
        paid.embed("abcd", TEXTS)
    assert str(raised.value) == (
        f"{server.url}: 32 of 40 is spent, and the next request would cost about 16 → "
        "raise the spend cap to go on"
    )
    assert raised.value.exit_code == 0
    assert not isinstance(raised.value, EmbedderError)
    assert len(server.requests) == 2
    assert paid.embed("ab", TEXTS[:2]).shape[0] == 2, "what fits is still allowed"
    assert paid.spend.spent == 40.0


def test_several_requests_of_one_call_are_allowed_together_or_not_at_all(server, endpoint):
    paid = endpoint(max_spend=40.0, batch_size=1)
    paid.embed("a", TEXTS[:1])
    with pytest.raises(BudgetSpent):
        paid.embed("abcdefghijkl", TEXTS * 3)
    assert len(server.requests) == 1


def test_what_earlier_runs_spent_counts(server, endpoint):
    with pytest.raises(BudgetSpent, match="30 of 40 is spent"):
        endpoint(max_spend=40.0, already_spent=30.0).embed("abcd", TEXTS)
    assert server.requests == []


def test_before_the_first_answer_four_characters_are_a_token(server, endpoint):
    assert endpoint(max_spend=18.0).embed("abcd", TEXTS).shape[0] == 4
    with pytest.raises(BudgetSpent, match="would cost about 18"):
        endpoint(max_spend=17.9).embed("abcd", TEXTS)


def test_an_endpoint_that_does_not_count_is_charged_by_estimate(server, endpoint):
    server.usage = False
    paid = endpoint()
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 18.0


def test_a_request_whose_answer_was_lost_is_counted_as_paid(server, endpoint):
    server.plans = [slow(1.0)]
    paid = endpoint(timeout=0.3)
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 18.0 + 16.0


def test_a_request_that_was_refused_is_not(server, endpoint):
    server.plans = [fails(429), fails(500)]
    paid = endpoint()
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 16.0


def test_retries_respect_the_cap_too(server, endpoint):
    server.plans = [slow(1.0)] * 3
    with pytest.raises(BudgetSpent):
        endpoint(timeout=0.3, max_spend=20.0).embed("abcd", TEXTS)
    assert len(server.requests) == 1


@given(st.lists(st.integers(1, 1000), max_size=30), st.floats(0.1, 3.0), st.floats(0, 10))
def test_with_steady_tokens_per_character_the_cap_is_never_passed(lengths, rate, cap):
    spend = Spend(1e3, cap)
    spend.count(100, 100 * rate)
    before = spend.spent
    for characters in lengths:
        try:
            spend.allow(spend.tokens_of(characters), "x")
        except BudgetSpent:
            continue
        spend.count(characters, characters * rate)
    assert spend.spent <= max(before, cap) + 1e-9
