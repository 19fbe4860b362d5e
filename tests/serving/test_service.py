"""What people on call see and do: health, metrics, keys, reloads, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.embedders.server import fails, slow
from tests.serving.conftest import CLIENT, QUERIES, TEXTS, until
from tests.serving.models import NEW, OLD, embed_new, embed_old

from crossfade import BadInput, Upgrade, serve
from crossfade.serving import Limits, Server
from crossfade.serving.app import Stoppable
from crossfade.serving.server import few_collections

ASKED = {"model": f"{NEW}@old", "input": QUERIES}


def metrics(gateway) -> dict:
    text = CLIENT.get(f"{gateway.url}/metrics").text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_was_counted(gateway, new_upstream):
    new_upstream.plans = [fails(503)]
    for model in (NEW, f"{NEW}@old", "nothing"):
        CLIENT.post(f"{gateway.url}/v1/embeddings", json={"model": model, "input": QUERIES})
    found = metrics(gateway)
    route = ("route", "/v1/embeddings")
    assert found["crossfade_requests_total", route, ("status", "200")] == 2
    assert found["crossfade_requests_total", route, ("status", "404")] == 1
    assert found["crossfade_request_seconds_count", route] == 3
    assert found["crossfade_request_seconds_bucket", ("le", "+Inf"), route] == 3
    assert found["crossfade_vectors_total", ("model", f"{NEW}@old")] == 3
    side = ("upstream", "new")
    outcomes = "crossfade_upstream_requests_total"
    assert found[outcomes, ("outcome", "good"), side] == 2
    assert found[outcomes, ("outcome", "failed"), side] == 1
    assert found[outcomes, ("outcome", "retried"), side] == 1
    words = sum(len(text.split()) for text in QUERIES)
    assert found["crossfade_upstream_tokens_total", side] == 2 * words
    assert found["crossfade_upstream_up", side] == 1
    assert found["crossfade_in_flight",] == 0
    assert found["process_cpu_seconds_total",] > 0


def test_the_page_is_told_what_was_counted(gateway):
    for _ in range(3):
        CLIENT.post(f"{gateway.url}/v1/embeddings", json=ASKED)
    told = gateway.gateway.live()
    latency = told.pop("latency_ms")
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
    words = sum(len(text.split()) for text in QUERIES)
    assert told == {
        "requests": 3,
        "errors": 0,
        "in_flight": 0,
        "upstream": {"new": "ok", "old": "ok"},
        "shadow": None,
        "spent": {"tokens_new": 3 * words, "tokens_old": 0},
    }


def test_ready_is_who_reaches_the_upstreams(gateway, old_upstream):
    assert CLIENT.get(f"{gateway.url}/healthz").json() == {"status": "ok"}
    answer = CLIENT.get(f"{gateway.url}/readyz")
    told = {"ready": True, "upstream": {"new": "ok", "old": "ok"}}
    assert (answer.status_code, answer.json()) == (200, told)
    old_upstream.stop()
    until(lambda: CLIENT.get(f"{gateway.url}/readyz").status_code == 503)
    told = CLIENT.get(f"{gateway.url}/readyz").json()
    assert told["upstream"] == {"new": "ok", "old": "away"}


def test_clients_show_a_key_where_keys_are_wanted(serve, new_upstream):
    gateway = serve(client_keys=["first-key", "second-key"])
    for path in ("/v1/models", "/metrics"):
        assert CLIENT.get(f"{gateway.url}{path}").status_code == 401
    for shown in ("", "Bearer", "Bearer third-key", "first-key", "Basic !", "Bearer first-key,"):
        answer = CLIENT.post(
            f"{gateway.url}/v1/embeddings", json=ASKED, headers={"Authorization": shown}
        )
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert new_upstream.requests == []
    for key in ("first-key", "second-key"):
        shown = {"Authorization": f"Bearer {key}"}
        answer = CLIENT.post(f"{gateway.url}/v1/embeddings", json=ASKED, headers=shown)
        assert answer.status_code == 200
    assert CLIENT.get(f"{gateway.url}/metrics", auth=("anyone", "first-key")).status_code == 200
    for path in ("/healthz", "/readyz"):
        assert CLIENT.get(f"{gateway.url}{path}").status_code == 200


@pytest.fixture
def other_folder(tmp_path):
    some = TEXTS[:500]
    made = Upgrade(solver="closed_form").fit(embed_old(some), embed_new(some))
    made.save(tmp_path / "other")
    return tmp_path / "other"


def vectors(gateway) -> np.ndarray:
    answer = CLIENT.post(f"{gateway.url}/v1/embeddings", json=ASKED)
    assert answer.status_code == 200
    return np.array([item["embedding"] for item in answer.json()["data"]], np.float32)


def test_a_changed_upgrade_is_loaded_without_dropping_a_request(
    tmp_path, serve, upgrade_folder, other_folder
):
    folder = tmp_path / "upgrade"
    shutil.copytree(upgrade_folder, folder)
    gateway = serve(upgrade=folder)
    asked = embed_new(QUERIES)
    before, after = (Upgrade.load(one).query_for_old(asked) for one in (folder, other_folder))
    assert np.allclose(vectors(gateway), before, atol=2e-6)
    assert not np.allclose(before, after, atol=1e-3)
    failures: list[str] = []
    end = threading.Event()

    def ask() -> None:
        while not end.is_set():
            found = vectors(gateway)
            if not any(np.allclose(found, one, atol=2e-6) for one in (before, after)):
                failures.append("of neither")

    asking = threading.Thread(target=ask)
    asking.start()
    Upgrade.load(other_folder).save(folder, overwrite=True)
    until(lambda: np.allclose(vectors(gateway), after, atol=2e-6))
    end.set()
    asking.join()
    assert failures == []


def test_a_broken_upgrade_is_told_and_the_former_goes_on(
    tmp_path, serve, upgrade_folder, upgrade, other_folder
):
    folder = tmp_path / "upgrade"
    shutil.copytree(upgrade_folder, folder)
    gateway = serve(upgrade=folder)
    (folder / "config.json").write_text("{}")
    until(lambda: metrics(gateway).get(("crossfade_reloads_total", ("outcome", "failed"))) == 1)
    assert np.allclose(vectors(gateway), upgrade.query_for_old(embed_new(QUERIES)), atol=2e-6)
    shutil.rmtree(folder)
    shutil.copytree(other_folder, folder)
    wanted = Upgrade.load(other_folder).query_for_old(embed_new(QUERIES))
    until(lambda: np.allclose(vectors(gateway), wanted, atol=2e-6))


def started(*arguments: object) -> tuple[subprocess.Popen, str]:
    """`crossfade serve` as its own process, and where it answers."""
    command = [sys.executable, "-m", "crossfade", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("{") and json.loads(line)["event"] == "serving":
            return process, json.loads(line)["url"]
    raise AssertionError(f"ended with {process.wait()}")


def test_the_command_finishes_what_was_begun_and_hears_a_hangup(
    tmp_path, upgrade_folder, other_folder, new_upstream, monkeypatch
):
    monkeypatch.setenv("THE_KEYS", "first-key,second-key")
    folder = tmp_path / "upgrade"
    shutil.copytree(upgrade_folder, folder)
    options = ["--upstream", new_upstream.url, "--model", NEW, "--client-keys-env", "THE_KEYS"]
    process, url = started(folder, *options)
    shown = {"Authorization": "Bearer second-key"}
    assert CLIENT.get(f"{url}/v1/models").status_code == 401
    Upgrade.load(other_folder).save(folder, overwrite=True)
    process.send_signal(signal.SIGHUP)
    wanted = Upgrade.load(other_folder).query_for_old(embed_new(QUERIES))

    def loaded() -> bool:
        data = CLIENT.post(f"{url}/v1/embeddings", json=ASKED, headers=shown).json()["data"]
        return np.allclose([item["embedding"] for item in data], wanted, atol=2e-6)

    until(loaded)
    asked = len(new_upstream.requests)
    new_upstream.plans = [slow(1.0)]
    answers = []

    def ask() -> None:
        answers.append(CLIENT.post(f"{url}/v1/embeddings", json=ASKED, headers=shown))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: len(new_upstream.requests) > asked)
    process.send_signal(signal.SIGTERM)
    asking.join()
    assert answers[0].status_code == 200
    assert process.wait() == 0
    told = process.stderr.read()
    process.stderr.close()
    assert '"event":"stopped"' in told
    assert "first-key" not in told
    with pytest.raises(OSError, match="refused"):
        port = int(url.rsplit(":", 1)[1])
        socket.create_connection(("127.0.0.1", port), 5).close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_old": OLD}, "the old model needs an upstream and a name"),
        ({"upstream_old": "http://127.0.0.1:9/v1", "model_old": NEW}, "both models are called"),
        ({"model": "a@b"}, "without @"),
        ({"upstream": "ftp://a"}, "not of the form https://host/path"),
        ({"upstream": "http://example.com/v1", "key_env": "SOME_KEY"}, "travel unencrypted"),
        ({"key_env": "NO_KEY"}, "NO_KEY holds no key"),
        ({"shadow": 0.1}, "--store"),
        ({"client_keys": []}, "no client key"),
        ({"store": "nowhere.lance"}, "is not a LanceDB table"),
        ({"host": "no.such.host.invalid"}, "cannot be listened on"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_is_started(
    upgrade_folder, options, words, monkeypatch
):
    monkeypatch.setenv("SOME_KEY", "sk-a-key")
    given = {"upstream": "http://127.0.0.1:9/v1", "model": NEW, "port": 0} | options
    with pytest.raises(BadInput, match=words) as found:
        serve(upgrade_folder, **given)
    assert "sk-a-key" not in str(found.value)


def test_a_port_that_is_taken_is_said(gateway, upgrade_folder):
    port = int(gateway.url.rsplit(":", 1)[1])
    with pytest.raises(BadInput, match="in use"):
        Server(upgrade_folder, upstream="http://127.0.0.1:9/v1", model=NEW, port=port)


def test_the_command_line_says_what_is_wrong(crossfade, upgrade_folder, tmp_path):
    options = ["--upstream", "http://127.0.0.1:9/v1", "--model", NEW, "--port", "0"]
    assert crossfade("serve", tmp_path, *options).code == 2
    ran = crossfade("serve", upgrade_folder, *options, "--client-keys-env", "NO_KEYS")
    assert (ran.code, "NO_KEYS: holds no client key" in ran.err) == (2, True)
    (tmp_path / "keys").write_text("\n")
    ran = crossfade("serve", upgrade_folder, *options, "--client-keys", tmp_path / "keys")
    assert (ran.code, "holds no client key" in ran.err) == (2, True)


def test_events_that_go_on_for_ever_end_with_the_gateway():
    async def events(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            await asyncio.sleep(0.01)

    async def course() -> list[dict]:
        stopping, sent = asyncio.Event(), []

        async def send(message: dict) -> None:
            sent.append(message)
            if len(sent) == 3:
                stopping.set()

        scope = {"type": "http", "method": "GET", "path": "/events"}
        await Stoppable(events, stopping)(scope, None, send)
        return sent

    sent = asyncio.run(course())
    assert [message.get("more_body") for message in sent] == [None, True, True, False]


def test_limits_are_numbers_that_make_sense():
    with pytest.raises(BadInput, match="seconds is 0"):
        Limits(seconds=0)
    with pytest.raises(BadInput, match="retries is -1"):
        Limits(retries=-1)


def test_python_collects_less_often_while_it_serves_and_as_before_afterwards():
    usual = gc.get_threshold()
    with few_collections():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > usual[0]
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == usual
