"""Who is slow about the head of a request is hung up on; who is slow elsewhere is not."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from tests.serving.conftest import CLIENT
from tests.serving.models import NEW

from crossfade.serving import Limits

LIMITS = Limits(head_seconds=0.4, head_bytes=2000)


@pytest.fixture
def quick(serve):
    return serve(limits=LIMITS)


def connect(gateway) -> socket.socket:
    parts = urlsplit(gateway.url)
    return socket.create_connection((parts.hostname, parts.port), 30)


def until_closed(connection) -> bytes:
    got = b""
    try:
        while piece := connection.recv(1 << 16):
            got += piece
    except ConnectionResetError:
        pass
    return got


def answered(connection) -> bytes:
    """One answer without a body, or with one that comes in the same piece."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(1 << 16)
        assert piece, got
        got += piece
    return got


def test_a_head_that_comes_letter_by_letter_is_a_408(quick):
    with closing(connect(quick)) as connection:
        begin = time.monotonic()
        connection.settimeout(0.05)
        got = b""
        for letter in b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"a" * 600:
            try:
                connection.sendall(bytes([letter]))
                got = connection.recv(1 << 16)
                break
            except TimeoutError:
                assert time.monotonic() - begin < 20, "it was waited for"
            except OSError:
                break
        assert got.startswith(b"HTTP/1.1 408") or not got
        assert time.monotonic() - begin >= LIMITS.head_seconds - 0.05
    assert CLIENT.get(f"{quick.url}/healthz").status_code == 200


def test_who_says_nothing_is_hung_up_on_without_a_word(quick):
    with closing(connect(quick)) as connection:
        assert until_closed(connection) == b""


@pytest.mark.parametrize("first", [b"\r\n", b"G"])
def test_after_an_answer_the_next_head_has_its_own_time(quick, first):
    with closing(connect(quick)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 200")
        # Between requests a connection may be idle for longer than a head may take.
        time.sleep(2 * LIMITS.head_seconds)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(first)
        assert until_closed(connection).startswith(b"HTTP/1.1 408")


def test_a_request_and_its_answer_may_take_longer_than_a_head(quick, new_upstream):
    def late(server, handler, asked):
        time.sleep(2 * LIMITS.head_seconds)
        server.send(handler, server.embedded(asked))

    new_upstream.plans = [late]
    answer = CLIENT.post(f"{quick.url}/v1/embeddings", json={"model": NEW, "input": "a"})
    assert answer.status_code == 200
    body = b'{"model": "%s", "input": "a"}' % NEW.encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with closing(connect(quick)) as connection:
        connection.sendall(head + body[:5])
        time.sleep(2 * LIMITS.head_seconds)
        connection.sendall(body[5:])
        assert answered(connection).startswith(b"HTTP/1.1 200")


def test_a_head_without_end_is_a_431(quick):
    with closing(connect(quick)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"a" * 3000)
        assert until_closed(connection).startswith(b"HTTP/1.1 431")
