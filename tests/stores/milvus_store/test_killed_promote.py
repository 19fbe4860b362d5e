"""Promote killed at every call that changes something: old or new is whole, never neither."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from itertools import count

import numpy as np
import pytest
from tests.stores.apps import create_in_milvus
from tests.stores.milvus_store.conftest import (
    DIM,
    SHARED,
    VECTOR,
    fill,
    held,
    lift_all,
    lifted,
    promote,
    row,
    vectors,
)

from crossfade.errors import StoreError
from crossfade.stores import open_store
from crossfade.stores.milvus import promote as promoting
from crossfade.stores.milvus.client import Database, local_client, release
from crossfade.stores.values import FileValues

ROWS = 30
READS = {
    "describe_alias",
    "describe_collection",
    "describe_index",
    "get_load_state",
    "has_collection",
    "list_aliases",
    "list_collections",
    "list_indexes",
    "list_partitions",
    "query",
}
# Forked off a process that has imported everything and has no server of milvus-lite.
_spawning = multiprocessing.get_context("forkserver")
_spawning.set_forkserver_preload(
    [
        "tests.stores.milvus_store.test_killed_promote",
        "milvus_lite.adapter.grpc.server",
        "crossfade.stores.milvus.store",
        "pymilvus.client.grpc_handler",
        "faiss",
    ]
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(promoting, "_IN_FLIGHT", 0.0)


@pytest.fixture(scope="module", params=["items", "alias"])
def prepared(request, tmp_path_factory):
    """A file with a collection that is lifted, asked for by its name or by an alias."""
    file = tmp_path_factory.mktemp("prepared") / "items.db"
    client = local_client(file)
    fill(client, rows=ROWS)
    client.create_alias("items", "alias")
    store = open_store(f"milvus:{file}#{request.param}")
    lift_all(store)
    store.close()
    release(file, client)
    return file, request.param


def copied(prepared, to):
    file, name = prepared
    shutil.copytree(file.parent, to)
    return to / file.name, name


def dies(address: str, last: int) -> None:
    """Promote, and die before the `last`-th act, which is after the one before it."""
    promoting._IN_FLIGHT = 0.0
    acts = 0

    def counted(plain):
        def act(self, *given, **named):
            nonlocal acts
            if given and given[0] in READS:
                return plain(self, *given, **named)
            acts += 1
            if acts == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, *given, **named)

        return act

    store = open_store(address)
    Database.call, FileValues.put = counted(Database.call), counted(FileValues.put)
    promote(store)


def killed(address: str, last: int) -> bool:
    child = _spawning.Process(target=dies, args=(address, last))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def is_whole(found) -> int:
    """Every row is there, with its old vector or with its new one; gives which, by its length."""
    old = vectors(ROWS)
    assert sorted(found) == list(range(ROWS))
    (dim,) = {len(vector) for _, vector in found.values()}
    expected = old if dim == DIM else lifted(old)
    for key, (body, vector) in found.items():
        assert body == f"text {key}"
        np.testing.assert_allclose(vector, expected[key], rtol=1e-6)
    return dim


def test_killed_at_every_act_it_is_whole_and_is_ended_in_both_ways(prepared, tmp_path):
    seen = set()
    for last in count(1):
        file, name = copied(prepared, tmp_path / str(last))
        address = f"milvus:{file}#{name}"
        if not killed(address, last):
            break
        client = local_client(file)
        store = open_store(address)
        seen.add(_looked_at(client, store, name))
        if last % 2:
            _taken_back(client, store, name)
        assert promote(store) == "vector"
        assert is_whole(held(client, name)) == SHARED
        assert client.list_collections() == ["items"]
        assert client.describe_alias("alias")["collection_name"] == "items"
        store.close()
        release(file, client)
    assert last > 12
    assert seen == {"old", "between", "new", "gone"} - {"between" if name == "alias" else ""}


def _looked_at(client, store, name) -> str:
    """Which collection is whole, and that it is searched."""
    view = store.view()
    client.load_collection(view.base_name)
    dim = is_whole(held(client, view.base_name))
    query = lifted(vectors(ROWS)[4])[0].astype(np.float32)
    column = VECTOR if VECTOR in store.describe().added else "vector"
    assert [hit.id for hit in store.search(query, column=column, k=1)] == [4]
    if dim == DIM:
        seen = "old" if client.has_collection(name) else "between"
    else:
        seen = "new" if view.switched else "gone"
    told = {"between": "neither", "gone": "new"}.get(seen, seen)
    assert store.own_vectors(VECTOR) == told
    return seen


def _taken_back(client, store, name) -> None:
    """Until old vectors go; with what the application has done to the new ones."""
    switched = store.view().switched
    if switched:
        client.delete(name, ids=[3])
    try:
        store.withdraw(VECTOR)
    except StoreError as error:
        assert "old vectors are gone" in str(error)
        if switched:
            client.insert(name, [row(3, lifted(vectors(ROWS)[3])[0].astype(np.float32))])
        return
    assert (3 in held(client, name)) is not switched
    if switched:
        client.insert(name, [row(3, vectors(ROWS)[3])])
    assert is_whole(held(client, name)) == DIM
    left = [n for n in client.list_collections() if n.startswith(("crossfade_n", "crossfade_o"))]
    assert not left


def test_what_is_written_until_the_switch_is_brought_over(file, client, monkeypatch):
    fill(client, rows=ROWS)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    plain = promoting.Promotion._switch
    fresh = vectors(3, seed=7)

    def late(self, aliases):
        client.upsert("items", [row(5, fresh[0], "changed")])
        client.insert("items", [row(100, fresh[1], "came")])
        client.upsert("items", [row(6, vectors(ROWS)[6], "another text")])
        client.upsert("items", [row(8, np.zeros(DIM, np.float32), "emptied")])
        client.delete("items", ids=[7])
        plain(self, aliases)
        # And what it does once the new one has the name is not undone.
        client.delete("items", ids=[9])
        client.upsert("items", [row(10, np.ones(SHARED, np.float32), "new")])
        client.insert("items", [row(101, np.ones(SHARED, np.float32), "newer")])

    monkeypatch.setattr(promoting.Promotion, "_switch", late)
    promote(store)
    found, old = held(client), lifted(vectors(ROWS))
    expected = {key: (f"text {key}", old[key]) for key in range(ROWS) if key not in (7, 9)}
    expected |= {
        5: ("changed", lifted(fresh[0])[0]),
        100: ("came", lifted(fresh[1])[0]),
        6: ("another text", old[6]),
        8: ("emptied", np.zeros(SHARED)),
        10: ("new", np.ones(SHARED)),
        101: ("newer", np.ones(SHARED)),
    }
    assert sorted(found) == sorted(expected)
    for key, (body, vector) in expected.items():
        assert found[key][0] == body
        np.testing.assert_allclose(found[key][1], vector, rtol=1e-6)
    store.close()


def test_what_is_done_to_the_new_collection_goes_back_with_the_name(file, client, monkeypatch):
    old = fill(client, rows=ROWS)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    monkeypatch.setattr(promoting.Promotion, "_switch", _then_dies(promoting.Promotion._switch))
    client.delete("items", ids=[11])
    with pytest.raises(_DiedError):
        promote(store)
    # The last acts on the old collection, which nobody has brought over.
    client.upsert("crossfade_old_items", [row(12, old[12], "changed before")])
    client.delete("crossfade_old_items", ids=[13])
    none = np.zeros(SHARED, np.float32)
    new = lifted(old).astype(np.float32)
    client.upsert("items", [row(3, none), row(4, none, "emptied, and another text")])
    client.insert("items", [row(100, none, "came without a vector")])
    client.upsert("items", [row(5, new[5], "another text")])
    client.delete("items", ids=[6])
    # What nobody but who forces it gets to: a vector of the new model is lost, the row is not.
    client.upsert("items", [row(7, np.ones(SHARED, np.float32), "written anew")])
    store.withdraw(VECTOR)
    found = held(client)
    expected = {k: (f"text {k}", old[k]) for k in range(ROWS) if k not in (6, 11, 13)}
    expected |= {
        3: ("text 3", np.zeros(DIM)),
        4: ("emptied, and another text", np.zeros(DIM)),
        5: ("another text", old[5]),
        7: ("written anew", np.zeros(DIM)),
        12: ("changed before", old[12]),
        100: ("came without a vector", np.zeros(DIM)),
    }
    assert sorted(found) == sorted(expected)
    for key, (body, vector) in expected.items():
        assert found[key][0] == body
        np.testing.assert_array_equal(found[key][1], vector.astype(np.float32))
    store.close()


class _DiedError(Exception):
    """Stands for a kill."""


def _then_dies(plain):
    def act(self, aliases):
        plain(self, aliases)
        raise _DiedError

    return act


def test_a_collection_that_is_half_dropped_is_in_nobodys_way(file, client):
    fill(client)
    store = open_store(f"milvus:{file}#items")
    # A process of milvus-lite that was killed while it made a collection, or dropped one.
    (file / "collections" / "crossfade_shadow_items" / "wal").mkdir(parents=True)
    (file / "collections" / "crossfade_new_items").mkdir()
    lift_all(store)
    promote(store)
    assert sorted(held(client)) == list(range(6))
    assert client.list_collections() == ["items"]
    assert [path.name for path in (file / "collections").iterdir()] == ["items"]
    store.close()


def test_another_collection_of_a_like_name_is_left_alone(file, client):
    fill(client)
    create_in_milvus(client, "items_2", [0], DIM)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    promote(store)
    assert sorted(client.list_collections()) == ["items", "items_2"]
    store.close()
