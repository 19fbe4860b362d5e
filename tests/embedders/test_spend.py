"""The spend cap stops before it is passed, and what was done stands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedders.server import changed, fails, model, slow

from crossfade.embedders import Endpoint, EndpointSettings
from crossfade.embedders.spend import Spend
from crossfade.errors import BudgetSpent, EmbedderError

# Four tokens each, as the server counts words; 18 bytes, and so with what may stand around a text
# never more than 34.
TEXTS = ["one two three four"] * 4
TOLD, MOST = 16.0, 4 * 34.0


@pytest.fixture
def endpoint(server, clock):
    def make(**settings):
        settings = {"model": "tiny", "batch_size": 4, "cost_per_million_tokens": 1e6} | settings
        return Endpoint(
            server.url,
            EndpointSettings(**settings),
            sleep=clock.sleep,
            clock=clock.clock,
            environment={},
        )

    return make


def test_the_cap_stops_before_the_request_that_could_pass_it(server, endpoint):
    paid = endpoint(max_spend=160.0)
    for _ in range(2):  # 16 each, and 136 at most: a third could make 168.
        assert np.array_equal(paid.embed("abcd", TEXTS), model(TEXTS))
    assert paid.spend.spent == 32.0
    with pytest.raises(BudgetSpent) as raised:
        paid.embed("abcd", TEXTS)
    assert str(raised.value) == (
        f"{server.url}: 32 of 160 is spent, and the next request could cost 136 → "
        "raise the spend cap to go on"
    )
    assert raised.value.exit_code == 0
    assert not isinstance(raised.value, EmbedderError)
    assert len(server.requests) == 2
    assert paid.spend.affordable(TEXTS) == 3
    assert paid.embed("abc", TEXTS[:3]).shape[0] == 3, "what fits is still allowed"
    assert paid.spend.spent == 44.0


def test_several_requests_of_one_call_are_allowed_together_or_not_at_all(server, endpoint):
    paid = endpoint(max_spend=300.0, batch_size=1)
    paid.embed("a", TEXTS[:1])
    with pytest.raises(BudgetSpent):
        paid.embed("abcdefghijkl", TEXTS * 3)
    assert len(server.requests) == 1


def test_what_is_spent_is_written_down_before_the_request_and_again_after_it(server, endpoint):
    paid, kept = endpoint(max_spend=1000.0), []
    server.plans = [lambda *asked: kept.append("asked") or changed(lambda _: None)(*asked)]
    with paid.spend.kept(300.0, kept.append):
        paid.embed("abcd", TEXTS)
    assert kept == [300.0 + MOST, "asked", 300.0 + TOLD]
    paid.embed("abcd", TEXTS)
    assert len(kept) == 3, "nobody is told of what is spent after that"
    with paid.spend.kept(300.0 + TOLD, kept.append):
        assert paid.spend.spent == 300.0 + 2 * TOLD, "what it knows of is not counted twice"


def test_nothing_is_sent_that_could_not_be_written_down(server, endpoint):
    def full(_):
        raise OSError("no space left")

    paid = endpoint(max_spend=1000.0)
    with pytest.raises(OSError, match="no space"), paid.spend.kept(0.0, full):
        paid.embed("abcd", TEXTS)
    assert server.requests == []


def test_what_earlier_runs_spent_counts(server, endpoint):
    paid = endpoint(max_spend=160.0)
    with (
        pytest.raises(BudgetSpent, match="30 of 160 is spent"),
        paid.spend.kept(30.0, lambda _: None),
    ):
        paid.embed("abcd", TEXTS)
    assert server.requests == []


def says(tokens):
    return changed(lambda answer: answer.update(usage=tokens))


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"total_tokens": 0},
        {"total_tokens": 0, "prompt_tokens": 0},
        {"total_tokens": 7},
        {"total_tokens": -16},
        {"total_tokens": "16"},
        {"total_tokens": True},
        {"total_tokens": float("inf")},
    ],
)
def test_an_endpoint_that_does_not_count_is_charged_with_the_most_it_can_be(
    server, endpoint, usage
):
    server.plans = [says(usage)] * 9
    paid = endpoint(max_spend=3 * MOST)
    for _ in range(3):
        paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 3 * MOST
    with pytest.raises(BudgetSpent):
        paid.embed("abcd", TEXTS)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "usage", [{"total_tokens": 0, "prompt_tokens": 9}, {"total_tokens": 9, "prompt_tokens": 0}]
)
def test_an_endpoint_that_counts_in_one_place_only_is_believed(server, endpoint, usage):
    server.plans = [says(usage)]
    paid = endpoint()
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 9.0


def test_an_endpoint_that_counts_more_than_there_can_be_is_believed_and_remembered(
    server, endpoint
):
    server.plans = [says({"total_tokens": 3 * MOST})]
    paid = endpoint(max_spend=5.9 * MOST)
    paid.embed("abcd", TEXTS)
    with pytest.raises(BudgetSpent):
        paid.embed("abcd", TEXTS)
    assert len(server.requests) == 1


def test_a_long_text_of_which_the_model_reads_the_beginning_is_believed(server, endpoint):
    server.plans = [says({"total_tokens": 256})]
    paid = endpoint()
    paid.embed("a", ["word " * 5000])
    assert paid.spend.tokens == 256.0


def test_a_request_whose_answer_was_lost_is_counted_as_paid(server, endpoint):
    server.plans = [slow(1.0)]
    paid = endpoint(timeout=0.3)
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == MOST + TOLD


WRONG = {
    "busy": fails(429),
    "broken": fails(500),
    "timeout": fails(408),
    "gone": lambda server, handler, asked: handler.connection.close(),
    "a page": lambda server, handler, asked: server.send(handler, b"<html>busy</html>"),
    "cut": lambda server, handler, asked: server.send(handler, server.embedded(asked), cut=40),
}


@pytest.mark.parametrize("plan", WRONG.values(), ids=WRONG)
def test_a_request_that_may_have_been_worked_on_is_counted_as_paid(server, endpoint, plan):
    server.plans = [plan]
    paid = endpoint(max_spend=2 * MOST)
    paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == MOST + TOLD


@pytest.mark.parametrize("plan", WRONG.values(), ids=WRONG)
def test_retries_respect_the_cap_too(server, endpoint, plan):
    server.plans = [plan] * 9
    with pytest.raises(BudgetSpent):
        endpoint(max_spend=2.5 * MOST).embed("abcd", TEXTS)
    assert len(server.requests) == 2


def test_an_answer_that_is_no_good_is_paid_for(server, endpoint):
    server.plans = [changed(lambda answer: {"data": []}), changed(lambda _: b" " * 200_000)]
    paid = endpoint(most_bytes=100_000)
    for count in (1, 2):
        with pytest.raises(EmbedderError):
            paid.embed("abcd", TEXTS)
        assert paid.spend.tokens == count * MOST


def test_a_request_that_was_turned_away_costs_nothing(server, endpoint):
    for code in (400, 401, 403, 404, 413, 422):
        server.plans = [fails(code)]
        paid, kept = endpoint(), []
        with pytest.raises(EmbedderError), paid.spend.kept(0.0, kept.append):
            paid.embed("abcd", TEXTS)
        assert paid.spend.tokens == 0.0
        assert kept == [MOST, 0.0]


def test_a_server_that_is_not_there_costs_nothing(server, endpoint):
    server.stop()
    paid = endpoint(retries=3)
    with pytest.raises(EmbedderError):
        paid.embed("abcd", TEXTS)
    assert paid.spend.tokens == 0.0


@given(
    st.lists(st.tuples(st.text(), st.floats(0, 1), st.sampled_from(["answers", "loses"]))),
    st.floats(0, 1e-3),
)
def test_whatever_a_text_is_worth_up_to_a_token_a_byte_the_cap_is_never_passed(asked, cap):
    spend = Spend(1e0, cap)
    charged = 0.0
    for text, share, how in asked:
        tokens = share * (len(text.encode("utf-8", "surrogatepass")) + 16)
        try:
            reserved = spend.reserve([text], "x")
        except BudgetSpent:
            continue
        charged += tokens
        if how == "answers":
            spend.settle(reserved, tokens)
    assert charged * 1e-6 <= cap + 1e-12
    assert charged * 1e-6 <= spend.spent + 1e-12
