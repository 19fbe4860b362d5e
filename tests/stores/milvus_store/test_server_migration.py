"""Whole migrations on a Milvus server, and the switch of `finish` killed there at every call.

The server is the real one of test_server.py. Rows are few, for what takes its time on a server is
to make and to load collections.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pymilvus import MilvusClient
from tests.migration.conftest import (  # noqa: F401  (fixtures)
    D,
    Function,
    N,
    World,
    filled_of,
    lifted_of,
    models,
    shared_of,
    texts_of,
    upgrade_folder,
)
from tests.stores.apps import MilvusApp
from tests.stores.milvus_server import session_server

from crossfade import Searcher, Upgrade
from crossfade.migration import Migration
from crossfade.stores.milvus import promote as promoting
from crossfade.stores.milvus import state
from crossfade.stores.milvus.client import Database
from crossfade.stores.milvus.store import MilvusStore

ROWS = 200
SWITCH = ("alter_alias", "rename_collection", "drop_collection")
# A lease that runs out soon after its holder was killed, on a server of one's own.
LEASE, SETTLE, IN_FLIGHT = 1.0, 0.3, 0.1
_spawning = multiprocessing.get_context("forkserver")
_spawning.set_forkserver_preload(
    [
        "tests.stores.milvus_store.test_server_migration",
        "crossfade.stores.milvus.store",
        "pymilvus.client.grpc_handler",
    ]
)


class ServerApp(MilvusApp):
    """A collection of its own on the server, which it may know by an alias."""

    def __init__(self, home: str, *, by_alias: bool) -> None:
        self.home, self.by_alias = home, by_alias
        self.name = home
        self.client = MilvusClient(uri=session_server().uri)
        self.address = f"{session_server().url}#{home}{'_other' if by_alias else ''}"

    def create(self, *rows) -> None:
        super().create(*rows)
        if self.by_alias:
            self.name = f"{self.home}_other"
            self.client.create_alias(self.home, self.name)

    def left(self) -> list[str]:
        """Its collection, and what a migration has left beside it."""
        return [name for name in self.client.list_collections() if self.home in name]

    def close(self) -> None:
        if self.by_alias:
            self.client.drop_alias(self.name)
        self.client.close()
        session_server().drop(self.home)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(state, "LEASE_SECONDS", 20.0)
    monkeypatch.setattr(state, "SETTLE_SECONDS", SETTLE)
    monkeypatch.setattr(promoting, "_IN_FLIGHT", IN_FLIGHT)


@pytest.fixture
def unsealed(monkeypatch):
    """Rows are not sealed after `forward`, which takes seconds and makes searches quicker alone."""
    monkeypatch.setattr(MilvusStore, "build_index", lambda self, column: None)


@pytest.fixture
def app(request):
    # A name of its own, for what is kept by the name stays on the server.
    made = ServerApp(request.node.name[:40], by_alias=False)
    yield made
    made.close()


@pytest.fixture
def world(app, models, upgrade_folder):  # noqa: F811
    return _filled(app, models, upgrade_folder)


def _filled(app, models, folder) -> World:  # noqa: F811
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    return World(app, models, folder, Upgrade.load(folder), dict(enumerate(texts)))


@pytest.fixture
def migration(world):
    made = Migration(world.app.address, world.folder)
    yield made
    made.close()


class Course:
    """What the application does beside a migration, and what its rows are because of it."""

    def __init__(self, world: World) -> None:
        self.world, self.texts = world, dict(world.texts)
        self.by_new_model: set[int] = set()
        self._others = iter(texts_of(100, seed=5))

    def goes_on(self, changed: int, came: int, gone: int, *, new: bool = False) -> None:
        """A row changes, one comes and one goes, embedded by the new model if so wanted."""
        app, texts = self.world.app, self.texts
        embed = self.world.models.new if new else self.world.models.old
        texts[changed], texts[came] = next(self._others), next(self._others)
        app.change(changed, texts[changed], embed([texts[changed]])[0])
        app.insert([came], [texts[came]], [0], embed([texts[came]]))
        app.delete(gone)
        del texts[gone]
        if new:
            self.by_new_model |= {changed, came}

    def finished(self, filled=()) -> dict[int, np.ndarray]:
        """The vectors there must be in the end."""
        out = {}
        for key, text in self.texts.items():
            if key in self.by_new_model:
                (out[key],) = self.world.models.new([text])
            elif key in filled:
                (out[key],) = filled_of(self.world, [text], 1.0)
            else:
                (out[key],) = lifted_of(self.world, [text])
        return out


def assert_near(found, wanted) -> None:
    assert sorted(found) == sorted(wanted)
    for key, vector in wanted.items():
        np.testing.assert_allclose(found[key], vector, atol=1e-4)


def test_a_whole_migration(world, migration, monkeypatch):
    app, course = world.app, Course(world)
    embedder = Function(world.models)
    migration.start(source="body", force=True)
    course.goes_on(3, 1000, 5)
    migration.forward(size=70)
    migration.backfill(embedder, share=0.5)
    assert migration.verify(embed=world.models.new).passed
    first, second, *_ = (key for key, (how, _) in shared_of(migration).items() if how == "filled")
    course.goes_on(first, 1001, second)
    searcher = Searcher(app.address, world.upgrade, refresh=0.0)
    # It came after all were lifted, and is found at once.
    (query,) = lifted_of(world, [course.texts[1001]])
    assert 1001 in [hit.id for hit in searcher.search(query, 3, ask="new")]
    assert not migration.verify().passed
    migration.forward()
    migration.backfill(embedder, share=1.0)
    assert migration.verify(embed=world.models.new).passed
    filled = {key for key, (how, _) in shared_of(migration).items() if how == "filled"}
    assert filled == set(course.texts)

    plain = promoting.Promotion._switch
    # One that was filled and changes in the last moment has no vector of what it is but its old.
    changed, gone = sorted(filled)[:2]

    def meanwhile(self, aliases) -> None:
        course.goes_on(changed, 1003, gone)
        plain(self, aliases)
        course.goes_on(9, 1004, 10, new=True)

    monkeypatch.setattr(promoting.Promotion, "_switch", meanwhile)
    assert migration.finish().stage == "finished"
    assert_near(app.old(), course.finished(filled - {changed}))
    (query,) = world.models.new([course.texts[1004]])
    assert [hit.id for hit in searcher.search(query, 1)] == [1004]
    assert app.left() == [app.home]
    searcher.store.close()


@pytest.mark.usefixtures("unsealed")
def test_a_rollback_leaves_what_the_application_has(world, migration):
    app, course = world.app, Course(world)
    migration.start(source="body", force=True)
    course.goes_on(3, 1000, 5)
    migration.forward()
    migration.backfill(Function(world.models), share=0.3)
    course.goes_on(4, 1001, 6)
    assert migration.rollback().stage == "rolled back"
    found = app.old()
    assert sorted(found) == sorted(course.texts)
    for key, text in course.texts.items():
        assert np.array_equal(found[key], world.models.old([text])[0])
    assert app.left() == [app.home]


def finish_until(address: str, folder: str, calls: int) -> None:
    """Finish, and die before the call of the switch that comes after so many of them."""
    state.LEASE_SECONDS, state.SETTLE_SECONDS, promoting._IN_FLIGHT = LEASE, SETTLE, IN_FLIGHT
    plain, made = Database.call, 0

    def counted(self, method, *given, **named):
        nonlocal made
        # A drop of what is gone already changes nothing.
        there = method != "drop_collection" or given[0] in plain(self, "list_collections")
        if method in SWITCH and there:
            if made == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            made += 1
        return plain(self, method, *given, **named)

    Database.call = counted
    Migration(address, folder).finish(force=True)


def killed(address: str, folder: str, calls: int) -> bool:
    child = _spawning.Process(target=finish_until, args=(address, str(folder), calls))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


@pytest.mark.usefixtures("unsealed")
def test_finish_killed_at_every_call_of_the_switch_is_ended_by_the_next(
    models,  # noqa: F811
    upgrade_folder,  # noqa: F811
):
    # Both at once, for the server is waited for most of the time.
    with ThreadPoolExecutor(2) as pool:
        ways = [("killed_name", False), ("killed_alias", True)]
        for done in [pool.submit(_killed_again, *way, models, upgrade_folder) for way in ways]:
            done.result()


def _killed_again(home: str, by_alias: bool, models, folder) -> None:  # noqa: F811
    app = ServerApp(home, by_alias=by_alias)
    world = _filled(app, models, folder)
    migration, course = Migration(app.address, folder), Course(world)
    migration.start(source="body", force=True)
    migration.forward()
    kills, seen = 0, []
    # The first dies before it has switched anything, and each other one call later.
    while killed(app.address, folder, min(kills, 1)):
        kills += 1
        _until_free(migration)
        base = migration.store.view().base_name
        seen.append(_is_whole(base, course))
        searcher = Searcher(app.address, world.upgrade)
        (query,) = lifted_of(world, [course.texts[30]])
        assert searcher.search(query, 1, ask="new")[0].id == 30
        searcher.store.close()
        # The application goes on with what its name stands for now, if with anything.
        if base == home or by_alias:
            course.goes_on(40 + kills, 1000 + kills, 60 + kills, new=seen[-1] == "new")
    if by_alias:
        assert seen == ["old", "new", "new", "new", "new"]
        assert app.client.describe_alias(app.name)["collection_name"] == home
    else:
        assert seen == ["old", "old", "new", "new"]
    assert_near(app.old(), course.finished())
    assert app.left() == [home]
    migration.close()
    app.close()


def _until_free(migration) -> None:
    """The lease of a process that was killed runs out by itself."""
    until = time.monotonic() + 20 * LEASE
    while migration.store._state.owner() is not None:
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_whole(name: str, course: Course) -> str:
    """Every row is there, all with vectors of one length: whose they are."""
    client = course.world.app.client
    found = client.query(name, filter="id >= 0", limit=1000, consistency_level="Strong")
    assert sorted(row["id"] for row in found) == sorted(course.texts)
    assert all(row["body"] == course.texts[row["id"]] for row in found)
    (dim,) = {len(row["vector"]) for row in found}
    return {D: "old", N: "new"}[dim]
