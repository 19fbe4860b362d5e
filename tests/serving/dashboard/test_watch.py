"""One look at the store for everybody who watches, and none when nobody does."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from tests.serving.dashboard.conftest import STORED, served, watching

from crossfade import Migration
from crossfade.journal import open_migrating
from crossfade.serving.dashboard import Watch
from crossfade.serving.dashboard import watch as pacing
from crossfade.stores import open_store


@contextmanager
def asked(address, path="/", host=None):
    """An answer, to somebody who calls the server by some name."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname, place.port)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        with connection.getresponse() as answer:
            yield answer
    finally:
        connection.close()


class Counted:
    """A store that counts how often its journal is read."""

    def __init__(self, store):
        self._store, self.looks = store, 0

    def get(self, key):
        self.looks += 1
        return self._store.get(key)

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(pacing, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(pacing, "BEAT_SECONDS", 0.2)


def test_many_pages_cost_the_store_no_more_than_one(place, fast):
    store = Counted(open_store(place))

    async def follow(watch):
        names = []
        async for name, _ in watch.follow():
            names.append(name)
            if names.count("beat") >= 3 and "state" in names:
                break
        return names

    async def run():
        watch, begin = Watch(store), time.monotonic()
        found = await asyncio.gather(*(follow(watch) for _ in range(20)))
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.02)
        looks, took = store.looks, time.monotonic() - begin
        # Whoever has gone is not looked for.
        await asyncio.sleep(0.3)
        return found, looks, took

    found, looks, took = asyncio.run(run())
    assert [names.count("state") for names in found] == [1] * 20
    assert 1 <= looks <= took / 0.05 + 1
    assert store.looks == looks


def test_a_slow_store_is_asked_for_a_twentieth_of_the_time(place):
    class Slow(Counted):
        def get(self, key):
            time.sleep(0.1)
            return super().get(key)

    store = Slow(open_store(place))

    async def run():
        watch, begin = Watch(store), time.monotonic()
        for _ in range(40):
            await watch.state()
            await asyncio.sleep(0.05)
        return time.monotonic() - begin

    took = asyncio.run(run())
    # A pause may end half a tick early.
    assert 1 <= store.looks <= 1 + took / (20 * 0.1 - pacing.TICK_SECONDS / 2)


def test_the_state_is_the_migrations_status(place, migration, plan_folder):
    migration.start(force=True, plan=plan_folder)
    watch = Watch(open_store(place), plan_folder)
    with served(watch) as address, asked(address, "/dashboard/state") as answer:
        found = json.load(answer)
    status = migration.status()
    assert (found["stage"], found["next"]) == (status.stage, status.next)
    assert found["error"] is None
    assert found["panels"]["quality"]


def test_every_store_is_followed_to_its_end(app, seen, upgrade_folder):
    """By a store that was opened before the columns changed."""
    old, labels = seen.old[STORED][:40], seen.labels[STORED][:40].tolist()
    if app.unit_length:
        old = old / np.linalg.norm(old, axis=1, keepdims=True)
    app.create(list(range(40)), [str(n) for n in range(40)], labels, old)
    migration = Migration(app.address, upgrade_folder)
    # An embedded Qdrant is opened once, by one process.
    store = migration.store if migration.store.kind == "qdrant" else open_migrating(app.address)
    watch = Watch(store)
    shown = [watch.look()["headline"]]
    for step in (
        lambda: migration.start(force=True),
        migration.forward,
        lambda: migration.finish(force=True),
    ):
        step()
        shown.append(watch.look()["headline"])
    store.close()
    migration.close()
    assert [words.split(":")[0] for words in shown] == [
        "No migration was started",
        "Started",
        "Every row is lifted",
        "Finished",
    ]


def test_a_plan_of_another_upgrade_is_not_shown(place, hostile, plan_folder):
    migration = Migration(place, hostile[0])
    migration.start(force=True)
    migration.close()
    assert Watch(open_store(place), plan_folder).look()["panels"]["quality"] is None


def test_nothing_is_allowed_to_the_page_but_its_own(place):
    with served(Watch(open_store(place))) as address, asked(address) as answer:
        policy = answer.headers["Content-Security-Policy"]
        html = answer.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http://www.w3.org/2000/svg" in html
    assert html.count("://") == 1


def test_a_page_of_another_name_is_not_answered(place):
    with watching(place, "--port", 0) as watch:
        for name, status in (("evil.example", 400), ("localhost", 200), ("127.0.0.1:1", 200)):
            with asked(watch.address, host=name) as answer:
                assert (name, answer.status) == (name, status)


def test_the_command_ends_well_with_a_page_open(place):
    with (
        watching(place, "--port", 0) as watch,
        asked(watch.address, "/dashboard/events") as events,
    ):
        while b"event: state" not in events.readline():
            pass
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait() == 0


def test_a_port_that_is_taken_is_named(crossfade, place):
    with watching(place, "--port", 0) as watch:
        port = watch.address.rstrip("/").rpartition(":")[2]
        ran = crossfade("migrate", "watch", place, "--port", port)
    assert ran.code == 2
    assert f"127.0.0.1:{port}: cannot be listened to" in ran.err


def test_without_the_extra_the_command_names_it(place):
    script = (
        "import sys\n"
        "sys.modules['starlette'] = sys.modules['starlette.responses'] = None\n"
        "sys.argv = ['crossfade', 'migrate', 'watch', sys.argv[1]]\n"
        "from crossfade.cli import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(place)], capture_output=True, text=True)
    assert ran.returncode == 2
    assert "pip install 'crossfade[serve]'" in ran.stderr
