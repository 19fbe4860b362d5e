"""What is particular to Qdrant: keys, ids, vectors without a name, the way to a server.

The way to a server is tested as far as it goes without one: what is sent over HTTP against a server
on loopback, and what a store does there with the client's local mode in the server's place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pytest
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse
from tests.stores.apps import QdrantApp

from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import Column, open_store, qdrant
from crossfade.stores.qdrant_place import Place, local_client, release
from crossfade.stores.qdrant_state import State
from crossfade.stores.rows import matrix

DIM, SHARED = 3, 4
SECRET = "key-that-nobody-sees"  # noqa: S105
ADDED = (Column("crossfade_vector", "vector", SHARED), Column("crossfade_state", "text"))
NAMES = [column.name for column in ADDED]
PAYLOAD_INDEX = "ignore:Payload indexes have no effect"


@pytest.fixture
def folder(tmp_path):
    """A folder with a local client that this process shares."""
    local_client(tmp_path / "qdrant")
    yield tmp_path / "qdrant"
    release(tmp_path / "qdrant")


@pytest.fixture
def client(folder):
    yield local_client(folder)
    release(folder)


@pytest.fixture
def as_server(monkeypatch, folder):
    """Stores that take the local client for a server."""

    class Kept(Place):
        def close(self) -> None:
            release(folder)

    def connect(url: str) -> Place:
        return Kept(local_client(folder), "qdrant://host:6333", None)

    monkeypatch.setattr(qdrant, "connect", connect)
    return "qdrant://host:6333#items"


def fill(client, vectors_config, rows=6, name="", ids=None):
    client.create_collection("items", vectors_config=vectors_config)
    vectors = np.random.default_rng(0).normal(size=(rows, DIM)).astype(np.float32)
    client.upsert(
        "items",
        [
            models.PointStruct(
                id=ids[i] if ids else i,
                vector={name: v.tolist()} if name else v.tolist(),
                payload={"body": f"text {i}", "price": i / 2, "new": i % 2 == 0},
            )
            for i, v in enumerate(vectors)
        ],
    )
    return vectors


def params(distance=models.Distance.COSINE):
    return models.VectorParams(size=DIM, distance=distance)


def written(ids, state="forward"):
    vectors = np.random.default_rng(1).normal(size=(len(ids), SHARED)).astype(np.float32)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids),
            "crossfade_vector": to_arrow(vectors),
            "crossfade_state": pa.array([state] * len(ids)),
        }
    )


class _Refusing(BaseHTTPRequestHandler):
    """A server that refuses everything and says what it was sent."""

    def do_GET(self) -> None:
        seen = self.headers.get("api-key", "")
        self.server.seen.append((self.path, seen))  # type: ignore[attr-defined]
        self.send_response(403)
        self.end_headers()
        self.wfile.write(f"wrong key {seen}".encode())

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_key_goes_to_the_server_and_nowhere_else(refusing, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    with pytest.raises(StoreError) as told:
        open_store(f"qdrant://127.0.0.1:{refusing.server_port}#items")
    path, key = refusing.seen[0]
    assert "/collections/items" in path
    assert key == SECRET
    assert SECRET not in str(told.value)
    assert "403" in str(told.value)
    assert told.value.__cause__ is None


def test_a_secret_in_the_address_is_refused_and_not_repeated(tmp_path):
    for address in (f"qdrant://me:{SECRET}@host:6333#items", f"qdrant://host?key={SECRET}#items"):
        with pytest.raises(BadInput, match="QDRANT_API_KEY") as told:
            open_store(address)
        assert SECRET not in str(told.value)


def test_no_server_is_a_store_error():
    with pytest.raises(StoreError, match=r"qdrant://127.0.0.1:1"):
        open_store("qdrant://127.0.0.1:1#items")


@pytest.mark.parametrize("place", ["qdrant:{0}", "qdrant:{0}/none#items", "qdrant:{0}#a/b"])
def test_addresses_that_name_nothing(folder, place):
    with pytest.raises(BadInput):
        open_store(place.format(folder))


def test_a_collection_that_is_not_there(folder, client):
    with pytest.raises(BadInput, match="no such collection"):
        open_store(f"qdrant:{folder}#items")


def test_a_folder_that_another_process_has_open_is_refused(folder, client):
    script = "import sys; from crossfade.stores import open_store; open_store(sys.argv[1])"
    place = f"qdrant:{folder}#items"
    ran = subprocess.run(
        [sys.executable, "-c", script, place], capture_output=True, text=True, env=os.environ
    )
    assert ran.returncode
    assert "StoreError" in ran.stderr
    assert "another process has this folder open" in ran.stderr


def test_local_mode_refuses_a_vector_without_a_name(folder, client):
    fill(client, params())
    store = open_store(f"qdrant:{folder}#items")
    assert store.vector == "vector"
    with pytest.raises(BadInput, match="takes no vectors without a name"):
        store.add_columns(ADDED)
    assert store.describe().added == ()
    # The application is as it was.
    client.upsert("items", [models.PointStruct(id=77, vector=[1.0, 2.0, 3.0])])
    store.close()


@pytest.mark.filterwarnings(PAYLOAD_INDEX)
def test_on_a_server_a_vector_without_a_name_is_promoted_to_one_with(client, as_server):
    vectors = fill(client, params())
    store = open_store(as_server)
    store.add_columns(ADDED)
    found = np.vstack([matrix(b["vector"]) for b in store.stream(["vector"], size=4)])
    np.testing.assert_allclose(found, vectors / np.linalg.norm(vectors, axis=1)[:, None], rtol=1e-6)
    rows = written(range(6))
    assert store.write(rows) == 6
    assert store.tally("crossfade_state") == {"forward": 6}
    query = np.ones(SHARED, np.float32)
    before = [hit.id for hit in store.search(query, column="crossfade_vector", k=6)]
    assert store.promote("crossfade_vector", ["crossfade_state"]) == "vector"
    assert list(client.get_collection("items").config.params.vectors) == ["vector"]
    assert [hit.id for hit in store.search(query, column="vector", k=6)] == before
    assert all("crossfade_state" not in r.payload for r in client.scroll("items")[0])
    store.close()
    again = open_store(as_server)
    assert (again.vector, again.describe().dim, again.describe().added) == ("vector", SHARED, ())
    again.close()


@pytest.mark.filterwarnings(PAYLOAD_INDEX)
def test_a_server_that_keeps_the_place_of_the_vector_without_a_name(client, as_server, monkeypatch):
    fill(client, params())
    store = open_store(as_server)
    store.add_columns(ADDED)
    store.write(written(range(6)))
    real = client.delete_vector_name

    def refused(collection, name, **more):
        if not name:
            raise UnexpectedResponse(404, "Not Found", b"", {})
        return real(collection, name, **more)

    monkeypatch.setattr(client, "delete_vector_name", refused)
    store.promote("crossfade_vector", ["crossfade_state"])
    assert all(list(r.vector) == ["vector"] for r in client.scroll("items", with_vectors=True)[0])
    store.close()
    again = open_store(as_server, vector="vector")
    assert again.describe().dim == SHARED
    again.close()


def test_an_older_server_is_told_apart(folder, client, monkeypatch):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")

    def unknown(*_, **__):
        raise UnexpectedResponse(404, "Not Found", b"", {})

    monkeypatch.setattr(client, "create_vector_name", unknown)
    with pytest.raises(StoreError, match=r"Qdrant 1\.18"):
        store.add_columns(ADDED)
    assert store.describe().added == ()
    store.close()


@pytest.mark.parametrize("after", ["delete_vector_name", "create_vector_name", "update", "drop"])
def test_a_promotion_that_is_cut_short_can_be_done_again(folder, client, monkeypatch, after):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    rows = written(range(6))
    store.write(rows)
    where = {
        "delete_vector_name": (client, "delete_vector_name"),
        "create_vector_name": (client, "create_vector_name"),
        "update": (client, "batch_update_points"),
        "drop": (client, "delete_payload"),
    }[after]
    real = getattr(*where)

    def cut(*arguments, **named):
        real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(*where, cut)
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"])
    monkeypatch.undo()
    store.close()
    again = open_store(f"qdrant:{folder}#items")
    assert again.vector == "text"
    assert again.promote("crossfade_vector", ["crossfade_state"]) == "text"
    given = matrix(rows["crossfade_vector"])
    given /= np.linalg.norm(given, axis=1)[:, None]
    found = matrix(again.read(range(6), ["text"])["text"])
    np.testing.assert_allclose(found, given, rtol=1e-6, atol=1e-7)
    assert (again.describe().added, again.describe().dim) == ((), SHARED)
    again.close()


@pytest.mark.parametrize(
    ("distance", "metric"), [(models.Distance.EUCLID, "l2"), (models.Distance.DOT, "dot")]
)
def test_scores_of_other_metrics(folder, client, distance, metric):
    vectors = fill(client, {"text": params(distance)}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    assert store.metric == metric
    query = np.array([0.5, -1.0, 2.0], np.float32)
    hits = store.search(query, column="text", k=6)
    scores = vectors @ query if metric == "dot" else -np.square(vectors - query).sum(axis=1)
    assert [hit.id for hit in hits] == np.argsort(-scores).tolist()
    assert hits[0].score == pytest.approx(scores.max(), rel=1e-5)
    found = matrix(store.read(range(6), ["text"])["text"])
    np.testing.assert_array_equal(found, vectors)
    store.close()


def test_a_metric_that_is_not_the_collection_s_is_refused(folder, client):
    fill(client, {"text": params()}, name="text")
    with pytest.raises(BadInput, match="compares by cosine, not by l2"):
        open_store(f"qdrant:{folder}#items", metric="l2")
    client.create_collection("other", vectors_config=params(models.Distance.MANHATTAN))
    with pytest.raises(BadInput, match="not known here"):
        open_store(f"qdrant:{folder}#other")


def test_filters_of_every_kind_of_value(folder, client):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")

    def found(where):
        return sorted(h.id for h in store.search(np.ones(DIM), column="text", k=9, where=where))

    assert found({"price": 1.5}) == [3]
    assert found({"new": True}) == [0, 2, 4]
    assert found({"body": ["text 1", "text 5"], "new": False}) == [1, 5]
    assert found({"body": []}) == []
    with pytest.raises(BadInput, match="is no name"):
        found({"body.x[]": 1})
    store.close()


def test_ids_are_integers_or_uuids_but_not_both(folder, client):
    key = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"
    fill(client, {"text": params()}, rows=3, name="text", ids=[1, 2, key])
    store = open_store(f"qdrant:{folder}#items")
    with pytest.raises(BadInput, match="integers and UUIDs"):
        list(store.stream(["text"]))
    client.delete("items", models.PointIdsList(points=[1, 2]))
    assert store.read([key.upper(), "no uuid"], ["body"])["body"].to_pylist() == ["text 2"]
    with pytest.raises(BadInput, match="cannot be the id"):
        open_store(f"qdrant:{folder}#items", id="body")
    store.close()


def test_several_vectors_need_a_name(folder, client):
    fill(client, {"text": params(), "image": params()}, name="text")
    with pytest.raises(BadInput, match="--vector: text, image"):
        open_store(f"qdrant:{folder}#items")
    store = open_store(f"qdrant:{folder}#items", vector="text")
    assert store.describe().dim == DIM
    store.close()


def test_a_row_that_vanishes_in_the_middle_of_a_write_does_not_stop_the_others(
    folder, client, monkeypatch
):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    real = client.batch_update_points

    def late(*arguments, **named):
        client.delete("items", models.PointIdsList(points=[3]))
        return real(*arguments, **named)

    monkeypatch.setattr(client, "batch_update_points", late)
    assert store.write(written(range(6))) == 5
    assert store.tally("crossfade_state") == {"forward": 5}
    assert store.read([3], NAMES)["crossfade_state"].to_pylist() == []
    store.close()


def test_a_lease_is_held_by_one_and_runs_out_with_its_holder(folder, client):
    place = Place(client, "qdrant://host", None)
    one, two = State(place, "items"), State(place, "items")
    other = State(place, "others")
    refused = pytest.raises(StoreError, match="another process is migrating")
    with one.lease(), other.lease(), refused, two.lease():
        pass
    with two.lease():
        pass
    # A holder that died renews nothing.
    assert one._take("dead", 0.05)
    time.sleep(0.1)
    with two.lease(), pytest.raises(StoreError), one.lease():
        pass


def test_a_lease_is_renewed_while_it_is_held(folder, client):
    place = Place(client, "qdrant://host", None)
    with State(place, "items").lease(0.4):
        time.sleep(1.0)
        with pytest.raises(StoreError, match="another process"), State(place, "items").lease():
            pass


def test_a_lease_that_was_lost_is_told(folder, client):
    state = State(Place(client, "qdrant://host", None), "items")

    def held():
        with state.lease(0.4):
            state._write("lease", {"owner": "another", "until": time.time() + 60})
            time.sleep(1.0)

    with pytest.raises(StoreError, match="passed to another process"):
        held()
    assert state._owner() == "another"


def test_an_application_and_a_store_share_a_client(tmp_path):
    app = QdrantApp(tmp_path)
    app.create([1], ["a"], [0], np.ones((1, DIM), np.float32))
    store = open_store(app.place)
    app.close()
    assert store.describe().rows == 1
    store.close()
    store.close()
    # All let go, so the folder can be opened afresh.
    again = open_store(app.place)
    assert again.describe().rows == 1
    again.close()
