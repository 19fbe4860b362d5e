"""Rows of a Qdrant collection: metrics, filters, ids, and writes that rows vanish from."""

from __future__ import annotations

import numpy as np
import pytest
from qdrant_client import models
from tests.stores.qdrant.conftest import ADDED, DIM, fill, params, written

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store
from crossfade.stores.rows import matrix

NAMES = [column.name for column in ADDED]


@pytest.mark.parametrize(
    ("distance", "metric"), [(models.Distance.EUCLID, "l2"), (models.Distance.DOT, "dot")]
)
def test_scores_of_other_metrics(folder, client, distance, metric):
    vectors = fill(client, {"text": params(distance)}, name="text")
    store = open_store(f"qdrant:{folder}#items")
    assert store.distance == metric
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
        open_store(f"qdrant:{folder}#items", distance="l2")
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


def test_a_point_that_comes_while_local_mode_reads_is_a_store_error(folder, client, monkeypatch):
    """Its arrays grow one after the other, and another thread may see them in between."""
    fill(client, {"vector": params()}, name="vector")
    store = open_store(f"qdrant:{folder}#items")
    collection = client._client.collections["items"]
    # The sixth point has come, and not all that is known of it.
    short = {name: flags[:5] for name, flags in collection.deleted_per_vector.items()}
    monkeypatch.setattr(collection, "deleted_per_vector", short)
    with pytest.raises(StoreError):
        next(store.stream(["vector"]))
    monkeypatch.undo()
    assert len(next(store.stream(["vector"]))) == 6
    store.close()
