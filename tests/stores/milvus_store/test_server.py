"""What is so on a server alone: the lease, segments and aliases.

The server is a real one, an old Milvus that knows the least of what stores may be; it is started by
these tests.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from pymilvus import DataType, MilvusClient
from tests.stores.milvus_server import session_server
from tests.stores.milvus_store.conftest import (
    DIM,
    SHARED,
    STATE,
    VECTOR,
    fill,
    held,
    lift_all,
    lifted,
    promote,
    row,
    vectors,
)

from crossfade.errors import BadInput, StoreBusy, StoreError
from crossfade.stores import open_store
from crossfade.stores.milvus import promote as promoting
from crossfade.stores.milvus.client import Database, connect
from crossfade.stores.milvus.collection import Collection
from crossfade.stores.milvus.schema import indexes
from crossfade.stores.milvus.state import ServerState
from crossfade.stores.registry import kept_value

ROWS = 50
# A server that others use too needs some time to answer.
_SETTLE = 0.5


@pytest.fixture(scope="module")
def url():
    return session_server().url


@pytest.fixture(scope="module")
def client():
    made = MilvusClient(uri=session_server().uri)
    yield made
    made.close()


@pytest.fixture
def name(request, client):
    """A collection of the test's own, dropped at the end."""
    made = request.node.name.partition("[")[0][:40]
    yield made
    session_server().drop(made)


@pytest.fixture(scope="module")
def place(url):
    made = connect(url)
    yield made
    made.close()


def test_a_lease_is_held_by_one_and_runs_out_with_its_holder(place):
    one, two, other = (ServerState(place, n) for n in ("lease", "lease", "another"))
    refused = pytest.raises(StoreBusy)
    with one.lock(settle=_SETTLE), other.lock(settle=_SETTLE), refused, two.lock(settle=_SETTLE):
        pass
    assert one.owner() is None
    # A holder that died renews nothing.
    assert one.take("dead", 1.0, _SETTLE)
    time.sleep(1.0)
    with two.lock(settle=_SETTLE):
        assert not one.take("late", 1.0, _SETTLE)


def test_a_lease_that_runs_out_before_it_is_sure_is_not_told_as_another_s(place):
    state = ServerState(place, "slow")
    with pytest.raises(StoreError, match="answers too slowly"):
        state.take("slow", 0.05, 0.1)
    state.put("lease", None)


def test_of_two_that_find_a_lease_free_one_gets_it(place, monkeypatch):
    one, two = ServerState(place, "race"), ServerState(place, "race")
    plain = ServerState._lease

    def overtaken(self, owner, seconds):
        # Another has found it free at the same time, and is the last to write.
        plain(self, owner, seconds)
        if self is one:
            plain(two, "two", seconds)

    monkeypatch.setattr(ServerState, "_lease", overtaken)
    assert not one.take("one", 5.0, _SETTLE)
    assert two.owner() == "two"
    two.put("lease", None)


def test_a_lease_is_renewed_and_told_when_it_is_lost(place):
    state = ServerState(place, "renewed")

    def hold():
        with state.lock(seconds=1.2, settle=_SETTLE):
            time.sleep(1.5)
            assert state.owner() is not None
            state._lease("another", 60.0)
            time.sleep(0.8)

    with pytest.raises(StoreError, match="passed to another process"):
        hold()
    assert state.owner() == "another"
    state.put("lease", None)


def test_values_of_any_length_are_kept(place, url, client, name):
    state = ServerState(place, "values")
    long = "é" * 70_000
    for value in (long, "short", long + "x", None):
        state.put("value/key", value)
        assert ServerState(place, "values").get("value/key") == value
    assert state.get("value/other") is None


def test_streams_sealed_and_growing_segments_in_order_and_skips_nothing(url, client, name):
    fill(client, name, rows=1)
    client.delete(name, ids=[0])
    rng = np.random.default_rng(1)
    ids = rng.permutation(3000)
    made = vectors(3000, seed=4)
    for part in np.array_split(ids, 3):
        client.insert(name, [row(int(i), made[i]) for i in part])
        client.flush(name)
    client.delete(name, ids=[int(i) for i in range(0, 3000, 7)])
    client.upsert(name, [row(int(i), made[i], "again") for i in range(1, 3000, 7)])
    expected = [i for i in range(3000) if i % 7]
    store = open_store(f"{url}#{name}")
    for size in (170, 5000):
        seen, bodies = [], {}
        for rows in store.stream(["vector", "body"], size=size):
            seen += rows["id"].to_pylist()
            bodies |= zip(rows["id"].to_pylist(), rows["body"].to_pylist(), strict=True)
        assert seen == expected
        assert (bodies[8], bodies[3]) == ("again", "text 3")
    iterator = client.query_iterator(
        name, filter="id >= 0", batch_size=500, output_fields=["id"], consistency_level="Strong"
    )
    theirs = []
    while page := iterator.next():
        theirs += [one["id"] for one in page]
    assert sorted(theirs) == expected
    assert store.duplicates() == []
    # An id that is inserted twice is there twice, and shown once.
    client.insert(name, [row(i, made[i], "twice") for i in (2, 2990)])
    assert store.duplicates() == [2, 2990]
    assert [key for rows in store.stream([]) for key in rows["id"].to_pylist()] == expected
    # What an index gives back are the bits that were given.
    found = client.get(name, ids=[5, 2998], consistency_level="Strong")
    for one in found:
        np.testing.assert_array_equal(np.array(one["vector"], np.float32), made[one["id"]])
    store.close()


def test_a_server_that_gives_rows_in_no_order_is_found_out(url, client, name, monkeypatch):
    fill(client, name, rows=40)
    store = open_store(f"{url}#{name}")
    plain = Database.call

    def unordered(self, method, *given, **named):
        found = plain(self, method, *given, **named | {"limit": 40} if "limit" in named else named)
        return found[-named["limit"] :] if "limit" in named else found

    monkeypatch.setattr(Database, "call", unordered)
    with pytest.raises(StoreError, match="in no order"):
        list(store.stream([], size=10))
    store.close()


def test_a_collection_that_is_not_loaded_is_refused(url, client, name):
    fill(client, name)
    client.release_collection(name)
    with pytest.raises(BadInput, match="is not loaded"):
        open_store(f"{url}#{name}")


def test_all_that_a_collection_has_comes_along_by_its_alias(url, client, name, monkeypatch):
    monkeypatch.setattr(promoting, "_IN_FLIGHT", 0.1)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True, description="mine")
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("body", DataType.VARCHAR, max_length=77)
    schema.add_field("kind", DataType.INT32)
    schema.add_field("facts", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="HNSW", metric_type="L2", M=8, efConstruction=40)
    index.add_index("kind", index_type="STL_SORT")
    client.create_collection(
        name,
        schema=schema,
        index_params=index,
        num_shards=2,
        consistency_level="Session",
        properties={"collection.ttl.seconds": "86400"},
    )
    client.create_partition(name, "english")
    alias = f"{name}_alias"
    client.create_alias(name, alias)
    old = vectors(ROWS)
    told = [
        {**row(i, v), "facts": {"n": [i, {"deep": True}]}, "tag": f"t{i}"}
        for i, v in enumerate(old)
    ]
    client.insert(name, told[:30])
    client.insert(name, told[30:], partition_name="english")
    before = client.describe_collection(name)
    address = f"{url}#{alias}"
    store = open_store(address)
    lift_all(store)
    store.put("stage", "x")
    calls = []
    plain = Database.call

    def watched(self, method, *given, **named):
        if method in ("alter_alias", "rename_collection", "drop_collection"):
            calls.append((method, *given))
            # Whoever asks for the alias has an answer before and after each.
            assert len(client.query(alias, filter="id >= 0", limit=100)) == ROWS
        return plain(self, method, *given, **named)

    monkeypatch.setattr(Database, "call", watched)
    promote(store)
    new, aside = f"crossfade_new_{name}", f"crossfade_old_{name}"
    assert calls == [
        ("alter_alias", new, alias),
        ("drop_collection", f"crossfade_shadow_{name}"),
        ("rename_collection", name, aside),
        ("rename_collection", new, name),
        ("drop_collection", aside),
    ]
    assert client.describe_alias(alias)["collection_name"] == name
    after = client.describe_collection(name)
    for field in after["fields"]:
        if field["name"] == "vector":
            assert field["params"]["dim"] == SHARED
            field["params"] = {"dim": DIM}
    told_of = ("description", "fields", "num_shards", "properties", "consistency_level")
    told_of += ("enable_dynamic_field", "auto_id")
    assert {key: after[key] for key in told_of} == {key: before[key] for key in told_of}
    made = indexes(plain_place(store), name)
    assert made["vector"]["params"] == {"M": 8, "efConstruction": 40}
    assert set(made) == {"vector", "kind"}
    found = client.query(name, filter="id >= 0", limit=100, consistency_level="Strong")
    assert {r["id"] for r in found} == set(range(ROWS))
    for one in found:
        assert (one["tag"], one["facts"]) == (f"t{one['id']}", {"n": [one["id"], {"deep": True}]})
        np.testing.assert_allclose(one["vector"], lifted(old[one["id"]])[0], rtol=1e-6)
    english = client.query(name, filter="id >= 0", limit=100, partition_names=["english"])
    assert {r["id"] for r in english} == set(range(30, ROWS))
    store.close()
    assert kept_value(f"{url}#{name}", "stage") == "x"


def plain_place(store):
    return store.view().database


def test_cut_off_at_every_call_of_the_switch_the_name_stands_for_one_whole(
    url, client, name, monkeypatch
):
    """By two renames: what was cut off between them is found, searched and ended."""
    monkeypatch.setattr(promoting, "_IN_FLIGHT", 0.1)
    fill(client, name, rows=ROWS)
    store = open_store(f"{url}#{name}")
    lift_all(store)
    plain, cut, calls = Database.call, 0, 0

    def counted(self, method, *given, **named):
        nonlocal calls
        if method not in ("rename_collection", "drop_collection"):
            return plain(self, method, *given, **named)
        calls += 1
        if calls <= cut:
            return plain(self, method, *given, **named)
        raise KeyboardInterrupt

    old = vectors(ROWS)
    query = lifted(old[9])[0].astype(np.float32)
    dims = []
    for _ in range(4):
        monkeypatch.setattr(Database, "call", counted)
        calls = 0
        # Each run does one more.
        cut = 1 if dims else 0
        with pytest.raises(KeyboardInterrupt):
            promote(store)
        monkeypatch.setattr(Database, "call", plain)
        again = open_store(f"{url}#{name}")
        base = again.view().base_name
        found = held(client, base)
        assert sorted(found) == list(range(ROWS))
        (dim,) = {len(vector) for _, vector in found.values()}
        dims.append(dim)
        column = VECTOR if VECTOR in again.describe().added else "vector"
        assert again.search(query, column=column, k=1)[0].id == 9
        again.close()
    assert dims == [DIM, DIM, SHARED, SHARED]
    assert promote(store) == "vector"
    assert {len(vector) for _, vector in held(client, name).values()} == {SHARED}
    assert not [n for n in client.list_collections() if n.endswith(f"_{name}")]
    store.close()


def test_the_consistency_of_what_is_read_before_it_is_written(url, client, name):
    # A collection whose searches may be late; what a migration reads may not.
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="COSINE")
    client.create_collection(
        name, schema=schema, index_params=index, consistency_level="Eventually"
    )
    store = open_store(f"{url}#{name}")
    for i in range(20):
        client.upsert(name, [{"id": i, "vector": vectors()[i % 6]}])
        assert store.describe().rows == i + 1
        assert store.read([i], []).num_rows == 1
    assert Collection(plain_place(store), name).shape.id == "id"
    store.close()


def test_tallies_and_late_rows_on_a_server(url, client, name):
    fill(client, name, rows=ROWS)
    store = open_store(f"{url}#{name}")
    lift_all(store)
    client.delete(name, ids=[1, 2])
    client.insert(name, [row(200, vectors()[0])])
    assert store.tally(STATE) == {"lifted": ROWS - 2, None: 1}
    assert [key for rows in store.stream([], missing=STATE) for key in rows["id"].to_pylist()] == [
        200
    ]
    store.close()
