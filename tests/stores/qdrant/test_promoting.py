"""Qdrant's named and unnamed vectors: adding one beside them, and making it the only one.

What a store does on a server is tested with the client's local mode in the server's place.
"""

from __future__ import annotations

import numpy as np
import pytest
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse
from tests.stores.apps import idle
from tests.stores.qdrant.conftest import ADDED, SHARED, fill, params, written

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store
from crossfade.stores.rows import matrix

PAYLOAD_INDEX = "ignore:Payload indexes have no effect"


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
    assert store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle) == "vector"
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
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
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
        store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    monkeypatch.undo()
    store.close()
    again = open_store(f"qdrant:{folder}#items")
    assert again.vector == "text"
    assert again.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle) == "text"
    given = matrix(rows["crossfade_vector"])
    given /= np.linalg.norm(given, axis=1)[:, None]
    found = matrix(again.read(range(6), ["text"])["text"])
    np.testing.assert_allclose(found, given, rtol=1e-6, atol=1e-7)
    assert (again.describe().added, again.describe().dim) == ((), SHARED)
    again.close()
