"""Workers of a Qdrant: a value is changed on condition, and one that has it alone is respected."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from qdrant_client.models import Distance, PointStruct, VectorParams
from tests.migration.conftest import D, texts_of
from tests.stores.qdrant.conftest import as_server, client, fill, folder, params  # noqa: F401

from crossfade.embedders import open_embedder
from crossfade.errors import BadInput, StoreBusy, WorkerLost
from crossfade.journal.work import KEY
from crossfade.migration import Migration
from crossfade.migration.preparation import Wanted
from crossfade.migration.together import _enter, fill_together
from crossfade.migration.workers import Member
from crossfade.stores import Joinable, open_store
from crossfade.stores.qdrant.client import Database
from crossfade.stores.qdrant.state import State


def add(some: str):
    return lambda value, now: (value or "") + some


def test_of_two_changes_at_one_moment_neither_is_lost(client):  # noqa: F811
    place = Database(client, "qdrant://host", None)
    one, two = State(place, "items"), State(place, "items")
    seen = []

    def interrupted(value, now):
        seen.append(value)
        if len(seen) == 1:
            # Between the reading and the writing of the one, the other has its way.
            two.change("work", add("b"))
        return (value or "") + "a"

    assert one.change("work", interrupted) == "ba"
    assert seen == [None, "b"]
    seen.clear()
    assert one.change("work", interrupted) == "baba"
    assert one.get("work") == "baba"

    def gone(value, now):
        seen.append(value)
        if len(seen) == 3:
            two.change("work", add("c"))
        return

    assert one.change("work", gone) is None
    assert seen[2:] == ["baba", "babac"]
    assert one.get("work") is None
    one.put("work", "plain")
    assert two.change("work", add("!")) == "plain!"


def test_it_is_joined_unless_somebody_has_it_alone(client, as_server):  # noqa: F811
    fill(client, {"vector": params()}, name="vector")
    store = open_store(as_server)
    assert isinstance(store, Joinable)
    with store.join("a"), store.join("b"):
        pass
    refused = pytest.raises(StoreBusy, match="another process is migrating")
    with store.lock(), refused, store.join("a"):
        pass
    # Whoever only looks whether there are workers is waited for.
    held = threading.Event()

    def look() -> None:
        with store.lock():
            held.set()
            time.sleep(0.3)

    looking = threading.Thread(target=look)
    looking.start()
    held.wait()
    with store.join("a"):
        pass
    looking.join()
    store.close()


def test_a_folder_is_of_one_process(client, folder):  # noqa: F811
    fill(client, {"vector": params()}, name="vector")
    store = open_store(f"qdrant:{folder}#items")
    with pytest.raises(BadInput, match="one process at a time"):
        store.join("a")
    store.close()


# Local mode, which stands in a server's place, has none.
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")
def test_a_worker_takes_over_what_a_dead_one_has_left(
    client,  # noqa: F811
    as_server,  # noqa: F811
    models,
    upgrade_folder,
):
    texts = texts_of(100)
    vectors = VectorParams(size=D, distance=Distance.COSINE)
    client.create_collection("items", vectors_config={"vector": vectors})
    points = [
        PointStruct(id=n, vector={"vector": old.tolist()}, payload={"body": text})
        for n, (text, old) in enumerate(zip(texts, models.old(texts), strict=True))
    ]
    client.upsert("items", points)
    store = open_store(as_server)
    migration = Migration(store, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    embedder = open_embedder(models.new)
    wanted = Wanted(share=1.0, batch=16, items=20)
    first = fill_together(store, migration.upgrade, embedder, wanted, "one", seconds=5.0)
    assert first.written == 20
    # Another lays the work out anew, leases a stretch of it, and is never heard of again.
    dead = Member(store, "dead", seconds=0.5)
    _enter(dead, migration.upgrade, embedder, replace(wanted, items=None), None, lambda: False)
    lease, _ = dead.claim()
    dead.announce(3)
    with pytest.raises(StoreBusy, match=r"a worker is filling it \(dead\)"):
        migration.verify()
    assert [one.state for one in migration.status().workers] == ["at work"]
    rest = Wanted(batch=16)
    done = fill_together(store, migration.upgrade, embedder, rest, "two", seconds=5.0)
    assert (lease.stretch, done.written, done.filled) == (0, 80, 100)
    with pytest.raises(WorkerLost):
        dead.announce(1)
    assert migration.verify(embed=models.new).passed
    assert store.get(KEY) is None
    migration.close()
