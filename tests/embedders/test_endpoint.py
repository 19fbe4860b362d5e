"""An OpenAI-compatible endpoint, as met by a client that wants every vector once."""

from __future__ import annotations

import socketserver
import threading
import time
from email.utils import formatdate

import numpy as np
import pytest
from tests.embedders.server import DIM, changed, fails, model, slow

from crossfade.embedders import Endpoint, EndpointSettings, embed_checked
from crossfade.errors import BadInput, EmbedderError

TEXTS = [f"text number {number} is about topic {number % 7}" for number in range(10)]
IDS = [f"id-{number}" for number in range(10)]


@pytest.fixture
def endpoint(server, clock):
    def make(**settings):
        settings = {"model": "tiny", "batch_size": 4} | settings
        return Endpoint(
            server.url,
            EndpointSettings(**settings),
            sleep=clock.sleep,
            clock=clock.clock,
            environment={},
        )

    return make


def embedded(endpoint):
    return embed_checked(endpoint, IDS, TEXTS, DIM)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_come_back_in_the_order_of_the_texts(server, endpoint, clock, encoding):
    vectors = embedded(endpoint(encoding=encoding, dimensions=DIM))
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, model(TEXTS))
    assert sorted(len(asked["input"]) for asked in server.requests) == [2, 4, 4]
    assert all(asked["model"] == "tiny" for asked in server.requests)
    assert all(asked["dimensions"] == DIM for asked in server.requests)
    assert server.paths == ["/v1/embeddings"] * 3
    assert clock.slept == []


def test_the_index_of_a_vector_counts_and_not_its_place(server, endpoint):
    server.plans = [changed(lambda answer: answer["data"].reverse())] * 3
    assert np.array_equal(embedded(endpoint()), model(TEXTS))


def test_a_server_that_asks_for_time_gets_it(server, endpoint, clock):
    server.plans = [fails(429, headers=[("Retry-After", "17")])]
    assert np.array_equal(embedded(endpoint()), model(TEXTS))
    assert clock.slept == [17.0]


def test_retry_after_may_be_a_date(server, endpoint, clock):
    date = formatdate(time.time() + 50, usegmt=True)
    server.plans = [fails(503, headers=[("Retry-After", date)])]
    embedded(endpoint())
    assert len(clock.slept) == 1
    assert 40 < clock.slept[0] <= 50


def test_waits_double_with_chance_in_them(server, endpoint, clock):
    server.plans = [fails(500), fails(502), fails(503), fails(429)]
    assert np.array_equal(embedded(endpoint(first_wait=2.0)), model(TEXTS))
    assert len(clock.slept) == 4
    for wait, most in zip(clock.slept, [2, 4, 8, 16], strict=True):
        assert most / 2 <= wait <= most


def test_a_service_that_stays_down_is_an_error_with_its_words(server, endpoint, clock):
    server.plans = [fails(500, "out of order")] * 9
    with pytest.raises(EmbedderError) as raised:
        embedded(endpoint(retries=2))
    assert str(raised.value) == (
        f"{server.url}: answered 500: out of order, 3 times; the first item of the batch is "
        "'id-0' → see whether the service is up, then resume"
    )
    assert raised.value.exit_code == 3
    assert len(server.requests) == 3
    assert len(clock.slept) == 2


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422])
def test_what_will_not_get_better_is_not_tried_again(server, endpoint, clock, code):
    server.plans = [fails(code, "you may not")]
    with pytest.raises(EmbedderError, match=f"answered {code}: you may not → "):
        embedded(endpoint())
    assert len(server.requests) == 1
    assert clock.slept == []


def test_an_empty_account_is_not_waited_for(server, endpoint, clock):
    server.plans = [fails(429, "You exceeded your current quota", kind="insufficient_quota")]
    with pytest.raises(EmbedderError, match=r"insufficient_quota → check the plan and the billing"):
        embedded(endpoint())
    assert clock.slept == []


def test_a_server_that_asks_for_an_hour_ends_the_run(server, endpoint, clock):
    server.plans = [fails(429, headers=[("Retry-After", "3600")])]
    with pytest.raises(EmbedderError, match="asks to be left alone for 3600 s → resume after"):
        embedded(endpoint())
    assert clock.slept == []


def test_a_slow_answer_is_asked_for_again(server, endpoint, clock):
    server.plans = [slow(1.5)]
    assert np.array_equal(embedded(endpoint(timeout=0.3)), model(TEXTS))
    assert len(server.requests) == 4
    assert len(clock.slept) == 1


def dripping(handler, rest, good):
    """What is left to say, a byte at a time; `good` is told how many came through."""
    for byte in rest:
        try:
            handler.wfile.write(bytes([byte]))
        except OSError:
            handler.close_connection = True
            return
        good.append(byte)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 100),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b" " * 100),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 100),
        (b"", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 5),
    ],
    ids=["body", "announced body", "one header", "headers", "continue"],
)
def test_an_answer_that_trickles_in_is_not_waited_for(server, endpoint, before, rest):
    good = []

    def trickle(server, handler, asked):
        handler.wfile.write(before)
        dripping(handler, rest, good)

    server.plans = [trickle]
    with pytest.raises(EmbedderError, match=r"no answer within 0.3 s, 1 times"):
        embedded(endpoint(timeout=0.3, retries=0))
    assert len(good) < 50


@pytest.mark.parametrize(
    ("code", "says"), [(400, "answered 400 → check"), (503, "answered 503, 1 times")]
)
@pytest.mark.parametrize("length", [b"", b"Content-Length: 100\r\n"])
def test_an_error_that_trickles_in_is_told_by_its_number(server, endpoint, code, says, length):
    good = []

    def trickle(server, handler, asked):
        handler.wfile.write(b"HTTP/1.1 %d No\r\n%s\r\n" % (code, length))
        dripping(handler, b" " * 100, good)

    server.plans = [trickle]
    with pytest.raises(EmbedderError, match=says):
        embedded(endpoint(timeout=0.3, retries=0))
    assert len(good) < 50


def test_a_handshake_that_trickles_in_is_not_waited_for(server, clock):
    good = []

    class Drips(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1)
            # The beginning of an encrypted answer of 1000 bytes.
            for byte in b"\x16\x03\x03\x03\xe8\x02" + bytes(100):
                try:
                    self.request.send(bytes([byte]))
                except OSError:
                    return
                good.append(byte)
                time.sleep(0.05)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drips) as drips:
        drips.daemon_threads = True
        threading.Thread(target=drips.serve_forever, args=(0.01,), daemon=True).start()
        settings = EndpointSettings(model="tiny", timeout=0.3, retries=0)
        url = f"https://127.0.0.1:{drips.server_address[1]}/v1"
        with pytest.raises(EmbedderError, match=r"no connection within 0.3 s, 1 times"):
            embedded(Endpoint(url, settings, sleep=clock.sleep, clock=clock.clock, environment={}))
        drips.shutdown()
    assert len(good) < 50


def test_a_server_that_goes_away_and_comes_back(server, endpoint, clock):
    server.stop()

    def wake():
        if len(clock.slept) == 3:
            server.start()

    clock.on_sleep = wake
    assert np.array_equal(embedded(endpoint()), model(TEXTS))
    assert len(clock.slept) == 3


def test_a_server_that_is_not_there(server, endpoint):
    server.stop()
    with pytest.raises(EmbedderError, match=r"no connection \(Connection refused\), 2 times"):
        embedded(endpoint(retries=1))


def test_a_connection_that_breaks_is_opened_again(server, endpoint, clock):
    server.plans = [lambda server, handler, asked: handler.connection.close()]
    assert np.array_equal(embedded(endpoint()), model(TEXTS))
    assert len(clock.slept) == 1


@pytest.mark.parametrize(
    "plan",
    [
        lambda server, handler, asked: server.send(handler, server.embedded(asked), cut=40),
        lambda server, handler, asked: server.send(handler, b'{"data": [{"index": 0, "embe'),
        lambda server, handler, asked: server.send(handler, b"<html>busy</html>"),
        lambda server, handler, asked: server.send(handler, b"[1]"),
        lambda server, handler, asked: server.send(handler, b"[" * 200_000),
        lambda server, handler, asked: server.send(handler, b""),
    ],
    ids=["cut short", "half of it", "a page", "no object", "deep", "empty"],
)
def test_an_answer_cut_short_is_asked_for_again(server, endpoint, clock, plan):
    server.plans = [plan]
    assert np.array_equal(embedded(endpoint()), model(TEXTS))
    assert len(clock.slept) == 1


def set_row(answer, row, embedding):
    answer["data"][row]["embedding"] = embedding


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: set_row(a, 1, [float("nan")] * DIM), "the vector of item 'id-1' has a NaN"),
        (lambda a: set_row(a, 2, [1e300] * DIM), "item 'id-2' has an infinite value"),
        (lambda a: set_row(a, 2, [0] * DIM), "the vector of item 'id-2' is all zeros"),
        (lambda a: set_row(a, 3, [1.0] * 8), "item 'id-3' has 8 dimensions where that of 'id-0'"),
        (lambda a: set_row(a, 1, None), "the vector of item 'id-1' is neither a list of numbers"),
        (lambda a: set_row(a, 1, "AAA"), "the vector of item 'id-1' is neither a list of numbers"),
        (lambda a: set_row(a, 1, [None] * DIM), "'id-1' is neither a list of numbers"),
        (lambda a: set_row(a, 1, [10**400] * DIM), "'id-1' is neither a list of numbers"),
        (
            lambda a: a["data"].pop(),
            "answered with 3 vectors, for 4 items",
        ),
        (
            lambda a: a["data"][0].update(index=1),
            "4 vectors, but not numbered from 0, for 4",
        ),
        (lambda a: a["data"][0].pop("index"), "but not numbered from 0"),
        (lambda a: a["data"][0].update(index={}), "but not numbered from 0"),
        (lambda a: a.update(data="none"), "answered without a list of 'data'"),
    ],
)
def test_a_wrong_answer_names_the_item_and_is_not_taken(server, endpoint, change, says):
    server.plans = [changed(lambda answer: (change(answer), None)[1])]
    with pytest.raises(EmbedderError, match=says):
        embedded(endpoint())


def test_another_dimension_than_the_upgrade_has(endpoint):
    with pytest.raises(
        EmbedderError, match="'id-0' has 32 dimensions where the upgrade's new model has 384 → "
    ):
        embed_checked(endpoint(), IDS, TEXTS, 384)


def test_two_batches_of_different_dimensions(server, endpoint):
    def narrow(answer):
        for item in answer["data"]:
            item["embedding"] = item["embedding"][:8]

    server.plans = [changed(narrow)]
    with pytest.raises(EmbedderError, match="vectors of 8 and of 32 dimensions"):
        embedded(endpoint())


@pytest.mark.parametrize("announced", [True, False])
def test_an_oversized_answer_is_refused_before_it_is_held(server, endpoint, announced):
    written = []

    def huge(server, handler, asked):
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        try:
            for _ in range(1 << 10):
                written.append(handler.wfile.write(b" " * (1 << 20)))
        except OSError:
            handler.close_connection = True

    server.plans = [huge]
    with pytest.raises(EmbedderError, match="answered with more than 100000 bytes → "):
        embedded(endpoint(most_bytes=100_000))
    assert sum(written) < 1 << 29


def test_a_redirect_is_not_followed(server, endpoint):
    server.plans = [fails(307, headers=[("Location", f"{server.url}/elsewhere")])]
    with pytest.raises(EmbedderError, match="answered 307"):
        embedded(endpoint())
    assert len(server.requests) == 1


def test_an_empty_text_is_named_before_anything_is_sent(server, endpoint):
    with pytest.raises(EmbedderError, match="item 'b' has an empty text"):
        embed_checked(endpoint(), ["a", "b"], ["x", " \n"], DIM)
    assert server.requests == []


def test_requests_keep_their_pace(endpoint, clock):
    embedded(endpoint(requests_per_second=0.5))
    assert clock.slept == [2.0, 2.0]


def test_tokens_keep_their_pace_by_the_servers_own_count(server, endpoint, clock):
    # 7 words a text, 4 texts a request, 60 tokens a minute: 28 seconds for each full request.
    embedded(endpoint(tokens_per_minute=60))
    assert clock.slept == pytest.approx([28.0, 28.0])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": ""}, "no model was named → name it with --model"),
        ({"batch_size": 0}, "batch_size is 0 → give a number above 0"),
        ({"timeout": -1.0}, "timeout is -1.0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": 1e12}, "timeout is 1000000000000.0 → give at most a day"),
        ({"cost_per_million_tokens": float("inf")}, "cost_per_million_tokens is inf"),
        ({"retries": -1}, "retries is -1 → give a number of 0 or more"),
        ({"max_spend": 1.0}, "a spend cap needs the price of the model"),
    ],
)
def test_settings_that_make_no_sense(endpoint, settings, says):
    with pytest.raises(BadInput, match=says):
        endpoint(**settings)
