"""Whatever upstreams, stores and clients do: the right status, nothing leaked, and it goes on."""

from __future__ import annotations

import json
import logging
import socket
import threading
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from tests.embedders.server import changed, fails, slow
from tests.faults.test_broken_migrations import Server as Postgres
from tests.serving.conftest import CLIENT, QUERIES, TEXTS, until
from tests.serving.models import NEW, OLD, Upstream, embed_new, embed_old
from tests.stores.apps import PostgresApp

from crossfade import Migration
from crossfade.serving import Limits

QUICK = Limits(seconds=20, first_wait=0.01)
ASKED = {"model": f"{NEW}@old", "input": "a text that must not be logged"}


def post(gateway, asked=ASKED, path="/v1/embeddings") -> httpx.Response:
    return CLIENT.post(f"{gateway.url}{path}", json=asked)


def error(answer: httpx.Response) -> dict:
    found = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def cut_short(server, handler, asked):
    server.send(handler, server.embedded(asked), cut=100)


def hang_up(server, handler, asked):
    handler.close_connection = True


def not_http(server, handler, asked):
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


def nonsense(body: bytes):
    return lambda server, handler, asked: server.send(handler, body)


@pytest.mark.parametrize(
    "fault",
    [fails(502), fails(503), fails(504), fails(429), hang_up, cut_short, nonsense(b"<html>")],
    ids=["502", "503", "504", "429", "hang up", "cut short", "no JSON"],
)
def test_what_may_pass_is_tried_again(serve, new_upstream, fault, upgrade):
    new_upstream.plans = [fault, fault]
    answer = post(serve(limits=QUICK))
    assert answer.status_code == 200
    found = np.array(answer.json()["data"][0]["embedding"], np.float32)
    wanted = upgrade.query_for_old(embed_new([ASKED["input"]]))[0]
    assert np.allclose(found, wanted, atol=2e-6)
    assert len(new_upstream.requests) == 3


def with_embedding(value):
    def change(answer):
        answer["data"][0]["embedding"] = value

    return changed(change)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (nonsense(b"<html>"), "no JSON"),
        (nonsense(b"[]"), "'data'"),
        (nonsense(b'{"data": [3]}'), "'data'"),
        (changed(lambda answer: answer["data"].append(answer["data"][0])), "2 vectors for 1"),
        (changed(lambda answer: answer["data"].clear()), "0 vectors for 1"),
        (with_embedding([1.0, 2.0]), "2 dimensions where 256 are wanted"),
        (with_embedding([1.0, None]), "neither a list of numbers nor base64"),
        (with_embedding([1.0, 1e60]), "a NaN or an infinity"),
        (with_embedding("AADAfw=="), "a NaN or an infinity"),
        (with_embedding("AAD!"), "neither a list of numbers nor base64"),
        (with_embedding([]), "of none"),
        (with_embedding([0.0] * 256), "zero"),
        (fails(301, headers=[("Location", "http://127.0.0.1:9/")]), "a redirect"),
        (fails(401, "bad key sk-secret-key"), "refuses the gateway's key"),
        (fails(404, "no such model"), "does not know"),
        (fails(418), "answered 418"),
        (not_http, "cannot be reached, or broke off"),
        (hang_up, "cannot be reached, or broke off"),
        (cut_short, "cannot be reached, or broke off"),
    ],
)
def test_nonsense_is_a_502_that_says_what_it_was(serve, new_upstream, fault, words, monkeypatch):
    monkeypatch.setenv("NEW_KEY", "sk-secret-key")
    gateway = serve(limits=QUICK, key_env="NEW_KEY")
    new_upstream.plans = [fault] * 3
    answer = post(gateway)
    assert answer.status_code == 502, answer.text
    assert words in error(answer)["message"]
    assert "sk-secret-key" not in answer.text
    new_upstream.plans = []
    assert post(gateway).status_code == 200


def test_a_redirect_carries_no_key_anywhere(serve, new_upstream, old_upstream, monkeypatch):
    monkeypatch.setenv("NEW_KEY", "sk-secret-key")
    new_upstream.plans = [
        fails(307, headers=[("Location", f"{old_upstream.url}/embeddings")]),
    ]
    assert post(serve(limits=QUICK, key_env="NEW_KEY")).status_code == 502
    assert old_upstream.requests == []


def test_a_nan_as_json_has_it_is_no_answer(serve, new_upstream):
    body = json.dumps({"data": [{"index": 0, "embedding": [float("nan")] * 256}]})
    new_upstream.plans = [nonsense(body.encode())] * 3
    assert post(serve(limits=QUICK)).status_code == 502


def test_vectors_out_of_order_are_put_in_order(serve, new_upstream):
    new_upstream.plans = [changed(lambda answer: answer["data"].reverse())]
    answer = post(serve(limits=QUICK), {"model": NEW, "input": QUERIES}).json()
    found = np.array([item["embedding"] for item in answer["data"]], np.float32)
    assert np.array_equal(found, embed_new(QUERIES))


def test_a_slow_upstream_is_a_504_within_the_limit(serve, new_upstream):
    gateway = serve(limits=Limits(seconds=0.5))
    assert post(gateway).status_code == 200
    new_upstream.plans = [slow(2.0)]
    answer = post(gateway)
    assert answer.status_code == 504
    assert "did not answer in 0.5 s" in error(answer)["message"]
    assert post(gateway).status_code == 200


def test_an_upstream_that_trickles_is_cut_off_too(serve, new_upstream):
    gate = threading.Event()

    def trickle(server, handler, asked):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not gate.wait(0.05):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    new_upstream.plans = [trickle]
    answer = post(serve(limits=Limits(seconds=0.5)))
    gate.set()
    assert answer.status_code == 504


def test_an_endless_answer_is_not_held(serve, new_upstream):
    def endless(server, handler, asked):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" " * (1 << 20))
        except OSError:
            handler.close_connection = True

    new_upstream.plans = [endless]
    answer = post(serve(limits=QUICK))
    assert answer.status_code == 502
    assert "sent more than" in error(answer)["message"]


def test_an_upstream_that_stays_away_is_left_alone_and_found_again(serve, new_upstream):
    limits = Limits(seconds=20, retries=0, first_wait=0.01, failures=3, rest=0.3)
    gateway = serve(limits=limits)
    new_upstream.stop()
    statuses = [post(gateway).status_code for _ in range(4)]
    assert statuses == [502, 502, 502, 503]
    answer = post(gateway)
    assert error(answer)["code"] == "upstream_unavailable"
    assert int(answer.headers["retry-after"]) >= 1
    assert gateway.gateway.live()["upstream"] == {"new": "open"}
    assert CLIENT.get(f"{gateway.url}/readyz").status_code == 503
    assert CLIENT.get(f"{gateway.url}/healthz").status_code == 200
    new_upstream.start()
    until(lambda: post(gateway).status_code == 200)
    assert gateway.gateway.live()["upstream"] == {"new": "ok"}


def test_an_upstream_that_is_busy_is_told_as_such_and_counts_as_alive(serve, new_upstream):
    gateway = serve(limits=Limits(seconds=20, retries=0, failures=1))
    new_upstream.plans = [fails(429, headers=[("Retry-After", "7")])]
    answer = post(gateway)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert post(gateway).status_code == 200


def test_what_the_upstream_says_of_a_request_reaches_the_client_without_the_key(
    serve, new_upstream, monkeypatch
):
    monkeypatch.setenv("NEW_KEY", "sk-secret-key")
    new_upstream.plans = [fails(400, "too long, sent with sk-secret-key")] * 2
    answer = post(serve(limits=QUICK, key_env="NEW_KEY"))
    assert answer.status_code == 400
    assert "too long, sent with ***" in error(answer)["message"]


def raw(gateway, lines: list[bytes]) -> bytes:
    """What comes back for bytes as they are sent."""
    parts = urlsplit(gateway.url)
    with closing(socket.create_connection((parts.hostname, parts.port), 30)) as connection:
        try:
            for line in lines:
                connection.sendall(line)
        except OSError:
            pass
        connection.settimeout(30)
        got = b""
        try:
            while piece := connection.recv(1 << 16):
                got += piece
        except OSError:
            pass
        return got


def test_a_gigabyte_in_chunks_is_refused_early_and_not_held(serve):
    gateway = serve(limits=Limits(body_bytes=1 << 20))
    sent = 0

    def gigabyte():
        nonlocal sent
        yield b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        for _ in range((1 << 30) // 0x10000):
            yield chunk
            sent += len(chunk)

    got = raw(gateway, gigabyte())
    assert got.startswith(b"HTTP/1.1 413"), got[:200]
    assert b"more than 1048576 bytes" in got
    assert sent < 1 << 28
    assert post(gateway).status_code == 200


def test_a_gigabyte_that_is_announced_is_refused_before_it_comes(serve, new_upstream):
    gateway = serve()
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n"
    assert raw(gateway, [head]).startswith(b"HTTP/1.1 413")
    assert new_upstream.requests == []


def test_a_body_that_never_ends_is_a_408(serve):
    gateway = serve(limits=Limits(seconds=0.4))
    head = b'POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"model":'
    assert raw(gateway, [head]).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b'"text"',
        b'{"model": "large", "input": NaN}',
        b'{"model": "large", "input": "\\ud800"}',
        b'{"model": "large", "input": "\xff"}',
        b"[" * 100_000,
        b'{"model": "large"}',
        b'{"model": "large", "input": []}',
        b'{"model": "large", "input": [[]]}',
        b'{"model": "large", "input": ["a", 1]}',
        b'{"model": "large", "input": [1, -2]}',
        b'{"model": "large", "input": [1.5]}',
        b'{"model": "large", "input": {"a": 1}}',
        b'{"model": 3, "input": "a"}',
        b'{"model": "large", "input": "a", "encoding_format": "int8"}',
        b'{"model": "large", "input": "a", "dimensions": -1}',
        b'{"model": "large", "input": "a", "dimensions": true}',
        json.dumps({"model": "large", "input": [""] * 1_000_000}).encode(),
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_a_body_that_makes_no_sense_is_a_400_and_nobody_is_asked(gateway, new_upstream, body):
    answer = CLIENT.post(f"{gateway.url}/v1/embeddings", content=body)
    assert answer.status_code == 400, answer.text
    assert error(answer)["type"] == "invalid_request_error"
    assert new_upstream.requests == []


def test_a_compressed_body_is_not_unpacked(gateway):
    answer = CLIENT.post(
        f"{gateway.url}/v1/embeddings", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415


def test_other_addresses_and_methods_are_refused_in_the_same_shape(gateway):
    assert error(CLIENT.get(f"{gateway.url}/v1/nothing"))["code"] == "not_found"
    answer = CLIENT.get(f"{gateway.url}/v1/embeddings")
    assert (answer.status_code, error(answer)["code"]) == (405, "method_not_allowed")


def test_beyond_the_requests_in_flight_clients_are_told_to_come_again(serve):
    slowly = Upstream(embed_new)
    slowly.start()
    gate = threading.Event()

    def wait(server, handler, asked):
        gate.wait(30)
        server.send(handler, server.embedded(asked))

    slowly.plans = [wait, wait]
    gateway = serve(upstream=slowly.url, limits=Limits(in_flight=2))
    answers = []
    waiting = [threading.Thread(target=lambda: answers.append(post(gateway))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    until(lambda: gateway.gateway.live()["in_flight"] == 2)
    refused = post(gateway)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    gate.set()
    for thread in waiting:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    assert post(gateway).status_code == 200
    slowly.stop()


def test_neither_texts_nor_keys_are_in_the_logs(serve, new_upstream, monkeypatch, caplog):
    from crossfade.serving.logs import JsonLines

    monkeypatch.setenv("NEW_KEY", "sk-secret-key")
    new_upstream.key = "another"
    caplog.set_level(logging.DEBUG, "crossfade")
    gateway = serve(limits=QUICK, key_env="NEW_KEY", client_keys=["client-secret"], access_log=True)
    shown = {"Authorization": "Bearer client-secret"}
    ways = (fails(500, ASKED["input"]), fails(400, ASKED["input"]), nonsense(b"{"), hang_up)
    for fault in ways:
        new_upstream.plans = [fault] * 3
        CLIENT.post(f"{gateway.url}/v1/embeddings", json=ASKED, headers=shown)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any('"status":502' in line for line in lines)
    for line in lines:
        assert isinstance(json.loads(line), dict)
        for secret in ("must not be logged", "secret-key", "client-secret"):
            assert secret not in line


@pytest.fixture
def postgres():
    server = Postgres()
    yield server
    server.server.cleanup()


def test_a_store_that_goes_away_under_load_is_waited_for_and_found_again(
    postgres, serve, old_upstream, upgrade_folder
):
    app = PostgresApp.__new__(PostgresApp)
    app.url = postgres.server.get_uri()
    app.address = f"{app.url}#items"
    app.run("CREATE EXTENSION vector")
    rows = TEXTS[900:1000]
    app.create(list(range(len(rows))), rows, [0] * len(rows), embed_old(rows))
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    migration.close()
    gateway = serve(
        store=app.address,
        upstream_old=old_upstream.url,
        model_old=OLD,
        limits=Limits(seconds=8),
    )
    statuses: list[int] = []
    end = threading.Event()

    def ask() -> None:
        while not end.is_set():
            answer = post(gateway, {"query": QUERIES[0], "k": 3}, "/v1/search")
            statuses.append(answer.status_code)

    assert CLIENT.get(f"{gateway.url}/readyz").json()["ready"]
    before = post(gateway, {"query": QUERIES[0]}, "/v1/search").json()["data"]
    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    until(lambda: len(statuses) >= 10)
    postgres.kill()
    # Embedding needs no store, and goes on.
    assert post(gateway).status_code == 200
    until(lambda: CLIENT.get(f"{gateway.url}/readyz").status_code == 503)
    postgres.start()
    until(lambda: CLIENT.get(f"{gateway.url}/readyz").status_code == 200)
    seen = len(statuses)
    until(lambda: len(statuses) >= seen + 20)
    end.set()
    for thread in asking:
        thread.join()
    assert set(statuses) <= {200, 503, 504}
    assert statuses[-10:] == [200] * 10
    after = post(gateway, {"query": QUERIES[0]}, "/v1/search").json()["data"]
    assert [hit["id"] for hit in after] == [hit["id"] for hit in before]
