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
    given = given / np.linalg.norm(given, axis=1)[:, None]
    found = matrix(again.read(range(6), ["text"])["text"])
    np.testing.assert_allclose(found, given, rtol=1e-6, atol=1e-7)
    assert (again.describe().added, again.describe().dim) == ((), SHARED)
    again.close()


def promoted_until(store, client, monkeypatch, name):
    """Promote, and die before the first call of that name."""

    def cut(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(client, name, cut)
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    monkeypatch.undo()


def test_a_vector_that_the_application_takes_away_is_no_sign_of_ours(folder, client, monkeypatch):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))

    def cut(rows):
        raise KeyboardInterrupt

    columns = ["text", "crossfade_vector"]
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=columns, work=cut)
    client.delete_vectors("items", ["text"], [3])
    shown = []

    def look(rows):
        shown.extend(rows["id"].to_pylist())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=columns, work=look)
    assert shown == list(range(6))
    # And there is a way back.
    store.withdraw("crossfade_vector")
    store.close()


def test_once_old_vectors_go_a_row_without_one_is_ours_and_there_is_no_way_back(
    folder, client, monkeypatch
):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))
    promoted_until(store, client, monkeypatch, "delete_vector_name")
    # Local mode takes them away point by point, and was cut off after the first.
    client.delete_vectors("items", ["text"], [0])
    with pytest.raises(StoreError, match="old vectors are gone"):
        store.withdraw("crossfade_vector")
    store.promote("crossfade_vector", ["crossfade_state"], columns=("text",), work=idle)
    assert store.read([0], ["text"])["text"].null_count == 0
    store.close()


def test_what_a_write_that_was_cut_short_has_left_is_not_promoted(folder, client, monkeypatch):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))
    # The application empties a row, and `forward` dies between its bookkeeping and its vector.
    client.delete_vectors("items", ["text"], [2])
    rows = store.read([2], [])

    def cut(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "delete_vectors", cut)
    with pytest.raises(KeyboardInterrupt):
        store.erase(rows)
    monkeypatch.undo()
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    assert store.read(range(6), ["text"])["text"].is_null().to_pylist() == [
        key == 2 for key in range(6)
    ]
    store.close()


def test_a_new_vector_that_the_application_wrote_meanwhile_stays(folder, client, monkeypatch):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))
    promoted_until(store, client, monkeypatch, "batch_update_points")
    own = [0.0, 0.0, 0.0, 1.0]
    client.update_vectors("items", [models.PointVectors(id=4, vector={"text": own})])
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    np.testing.assert_allclose(matrix(store.read([4], ["text"])["text"])[0], own)
    store.close()


def test_reading_a_vector_that_is_gone_for_the_moment_is_a_store_error(folder, client, monkeypatch):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))
    promoted_until(store, client, monkeypatch, "create_vector_name")
    other = open_store(f"qdrant:{folder}#items")
    for reading in (lambda: other.read([1], ["text"]), lambda: next(other.stream(["text"]))):
        with pytest.raises(StoreError, match="being promoted"):
            reading()
    other.close()
    store.close()


def test_a_store_that_was_opened_while_the_vector_was_away_finds_it_again(
    folder, client, monkeypatch
):
    fill(client, {"vector": params()}, name="vector")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    rows = written(range(6))
    store.write(rows)
    promoted_until(store, client, monkeypatch, "create_vector_name")
    other = open_store(f"qdrant:{folder}#items")
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    query = matrix(rows["crossfade_vector"])[3]
    assert other.search(query, column="vector", k=1)[0].id == 3
    other.close()
    store.close()


def test_searches_go_by_the_promoted_vector_while_the_shared_one_is_dropped(
    folder, client, monkeypatch
):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    rows = written(range(6))
    store.write(rows)
    real = client.delete_vector_name

    def cut(collection, name):
        if name == "crossfade_vector":
            # Point by point, and cut off after the first.
            client.delete_vectors(collection, [name], [3])
            raise KeyboardInterrupt
        return real(collection, name)

    monkeypatch.setattr(client, "delete_vector_name", cut)
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    monkeypatch.undo()
    query = matrix(rows["crossfade_vector"])[3]
    assert store.search(query, column="crossfade_vector", k=1)[0].id == 3
    store.close()


def test_a_new_vector_that_the_application_took_away_meanwhile_does_not_come_back(
    folder, client, monkeypatch
):
    fill(client, {"text": params()}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    store.add_columns(ADDED)
    store.write(written(range(6)))
    real = client.upsert

    def cut(collection, points, **named):
        if points[0].payload.get("key") == "copied":
            raise KeyboardInterrupt
        return real(collection, points, **named)

    monkeypatch.setattr(client, "upsert", cut)
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    monkeypatch.undo()
    client.delete_vectors("items", ["text"], [4])
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    assert store.read([4], ["text"])["text"].null_count == 1
    store.close()
