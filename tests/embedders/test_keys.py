"""A key is sent to the endpoint it is for, and is seen nowhere else."""

from __future__ import annotations

import base64
import html
import json
import traceback
from urllib.parse import quote

import pytest
from tests.embedders.server import DIM, fails

from crossfade.embedders import Endpoint, EndpointSettings
from crossfade.embedders.address import address_of
from crossfade.errors import BadInput, EmbedderError
from crossfade.redaction import redact

KEY = "sk-xyzzy-0123456789"


def everything_said(endpoint, raised, capfd):
    """All that a person or a log could get to see."""
    told = capfd.readouterr()
    trace = "".join(traceback.format_exception(raised)) if raised else ""
    attributes = repr(vars(endpoint)) + repr(endpoint._address)
    return told.out + told.err + trace + repr(endpoint) + str(endpoint) + endpoint.name + attributes


def test_the_key_is_sent_and_a_good_answer_shows_nothing_of_it(server, capfd):
    server.key = KEY
    settings = EndpointSettings(model="tiny", key_env="MY_KEY")
    endpoint = Endpoint(server.url, settings, environment={"MY_KEY": KEY + "\n"})
    assert endpoint.embed(["a"], ["text"]).shape == (1, DIM)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert "xyzzy" not in everything_said(endpoint, None, capfd)


@pytest.mark.parametrize(
    "plan",
    [
        fails(401, f"Incorrect API key provided: {KEY}"),
        fails(500, f"I was given Bearer {KEY}"),
        lambda server, handler, asked: server.send(handler, f"no JSON {KEY}".encode(), 400),
        lambda server, handler, asked: server.send(handler, f"no JSON {KEY}".encode()),
        lambda server, handler, asked: server.send(handler, {"data": KEY}),
        lambda server, handler, asked: server.send(
            handler, {"data": [{"index": 0, "embedding": KEY}]}
        ),
        lambda server, handler, asked: server.send(handler, {"data": [{"index": KEY}]}),
        lambda server, handler, asked: handler.wfile.write(f"{KEY}\r\n\r\n".encode()),
    ],
    ids=["401", "500", "400 text", "no JSON", "no data", "no vector", "no index", "no HTTP"],
)
def test_an_error_shows_no_key_even_if_the_server_repeats_it(server, clock, capfd, plan):
    server.plans = [plan] * 2
    settings = EndpointSettings(model="tiny", key_env="MY_KEY", retries=1)
    endpoint = Endpoint(
        server.url, settings, sleep=clock.sleep, clock=clock.clock, environment={"MY_KEY": KEY}
    )
    with pytest.raises(EmbedderError) as raised:
        endpoint.embed(["a"], ["text"])
    assert "xyzzy" not in everything_said(endpoint, raised.value, capfd)


ODD = "sk-xyzzy/0+1=2&3%4?5"


def encoded(text, lead=""):
    return base64.b64encode((lead + text).encode()).decode()


SPELLINGS = {
    "percent": quote(ODD, safe=""),
    "every byte": "".join(f"%{ord(c):02x}" for c in ODD),
    "percent twice": quote(quote(ODD, safe=""), safe=""),
    "half of it": quote(ODD),
    "JSON": json.dumps(ODD)[1:-1].replace("/", "\\/"),
    "code points": "".join(f"\\u{ord(c):04X}" for c in ODD),
    "HTML": html.escape(ODD),
    "HTML numbers": "".join(f"&#{ord(c)};" for c in ODD),
    "base64": encoded(ODD),
    "base64 of the header": encoded(ODD, "Bearer "),
    "base64 of a user": encoded(ODD, "me:"),
    "url-safe": base64.urlsafe_b64encode(ODD.encode()).decode(),
    "base64 in a URL": quote(encoded(ODD + "??>>", "?>"), safe=""),
    "longer base64": encoded(json.dumps({"authorization": f"Bearer {ODD}", "more": "x" * 99})),
    "base64 in lines": base64.encodebytes(b"b" * 44 + ODD.encode()).decode().strip(),
    **{f"base64 after {n}": encoded(ODD + "after", "b" * n) for n in range(3)},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("code", [400, 500])
def test_an_error_shows_no_key_however_the_server_spells_it(server, clock, capfd, spelling, code):
    said = SPELLINGS[spelling]
    for body in (
        json.dumps({"error": {"message": f"bad key <{said}>, sorry"}}).encode(),
        f"bad key <{said}>, sorry".encode(),
    ):
        server.plans = [lambda server, handler, asked, b=body: server.send(handler, b, code)]
        settings = EndpointSettings(model="tiny", key_env="MY_KEY", retries=0)
        endpoint = Endpoint(
            server.url, settings, sleep=clock.sleep, clock=clock.clock, environment={"MY_KEY": ODD}
        )
        with pytest.raises(EmbedderError) as raised:
            endpoint.embed(["a"], ["text"])
        told = everything_said(endpoint, raised.value, capfd)
        assert "***>, sorry" in told
        assert said not in told
        assert "xyzzy" not in told
        assert base64.b64encode(b"xyzzy").decode().rstrip("=")[:6] not in told


def test_a_key_that_is_cut_by_what_is_read_of_an_answer_is_not_shown(server, clock, capfd):
    # Spaces are shortened, so that what stands behind them would be shown.
    for most in (1 << 14, 1 << 13):
        for cut in range(4, len(KEY), 5):
            body = b"bad" + b" " * (most - 3 - cut) + KEY.encode() + b" " * most
            server.plans = [lambda server, handler, asked, b=body: server.send(handler, b, 400)]
            settings = EndpointSettings(model="tiny", key_env="MY_KEY")
            environment = {"MY_KEY": KEY}
            endpoint = Endpoint(
                server.url, settings, sleep=clock.sleep, clock=clock.clock, environment=environment
            )
            with pytest.raises(EmbedderError) as raised:
                endpoint.embed(["a"], ["text"])
            assert KEY[:4] not in everything_said(endpoint, raised.value, capfd)


@pytest.mark.parametrize("text", ["no secret here at all", "AAAA" * 5000, "%20" * 5000])
def test_what_holds_no_key_stays_as_it_is(text):
    assert redact(text, [ODD, KEY]) == text


def test_the_values_of_a_query_and_a_key_in_the_place_of_a_user_are_not_shown(server, clock, capfd):
    url = server.url.replace("http://", "http://xyzzy-user@") + "?key=xyzzy-value&v=1"
    endpoint = Endpoint(url, EndpointSettings(model="tiny"), environment={})
    server.plans = [fails(400, "no such key: xyzzy-value of xyzzy-user in version 1")]
    with pytest.raises(EmbedderError, match=r"key: \*\*\* of \*\*\* in version 1") as raised:
        endpoint.embed(["a"], ["text"])
    assert "xyzzy" not in everything_said(endpoint, raised.value, capfd)


def test_a_user_in_the_url_authorizes_and_is_not_shown(server, clock, capfd):
    url = server.url.replace("http://", "http://me:p%40ss-xyzzy@") + "?api-version=xyzzy-too"
    endpoint = Endpoint(url, EndpointSettings(model="tiny"), environment={})
    assert endpoint.embed(["a"], ["text"]).shape == (1, DIM)
    scheme, encoded = server.headers[0]["Authorization"].split()
    assert (scheme, base64.b64decode(encoded)) == ("Basic", b"me:p@ss-xyzzy")
    assert server.paths == ["/v1/embeddings?api-version=xyzzy-too"]
    server.plans = [fails(400, f"bad {encoded} p@ss-xyzzy api-version=xyzzy-too")]
    with pytest.raises(EmbedderError) as raised:
        endpoint.embed(["a"], ["text"])
    said = everything_said(endpoint, raised.value, capfd)
    assert "xyzzy" not in said
    assert encoded not in said


def test_the_key_of_one_service_is_not_sent_to_another():
    environment = {"OPENAI_API_KEY": KEY}
    assert address_of("https://example.com/v1", None, environment).authorization is None
    known = address_of("https://api.openai.com/v1", None, environment)
    assert known.authorization == f"Bearer {KEY}"
    named = address_of("https://example.com/v1", "OPENAI_API_KEY", environment)
    assert named.authorization == f"Bearer {KEY}"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:80", "127.9.9.9"])
def test_plain_http_is_good_enough_on_this_machine(host):
    assert address_of(f"http://{host}/v1", "K", {"K": KEY}).loopback


def test_plain_http_to_another_machine_needs_a_word():
    with pytest.raises(BadInput, match="the key would travel unencrypted → use https"):
        address_of("http://example.com/v1", "K", {"K": KEY})
    with pytest.raises(BadInput, match="the key would travel unencrypted"):
        address_of("http://me:pw@127.0.0.1.example.com/v1", None, {})
    allowed = address_of("http://example.com/v1", "K", {"K": KEY}, allow_insecure=True)
    assert allowed.authorization
    assert address_of("http://example.com/v1", None, {}).authorization is None


@pytest.mark.parametrize(
    ("url", "key", "says"),
    [
        ("https://example.com/v1", "", "the environment variable K holds no key → export it"),
        ("https://example.com/v1", "sk-xyzzy\nX: y", "variable K holds odd characters"),
        ("https://me:xyzzy@example.com/v1", "sk-xyzzy", "a user in its URL and a key"),
        ("https://me:xyzzy@/v1", "sk-xyzzy", "is not of the form https://host/path"),
        ("ftp://me:xyzzy@example.com", "sk-xyzzy", "is not of the form https://host/path"),
        ("https://me:xyzzy@example.com:port/", "sk-xyzzy", "cannot be read"),
        ("https://me:xyzzy@exa mple.com/", "sk-xyzzy", "holds odd characters"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_it(url, key, says):
    with pytest.raises(BadInput, match=says) as raised:
        address_of(url, "K", {"K": key})
    assert "xyzzy" not in "".join(traceback.format_exception(raised.value))
