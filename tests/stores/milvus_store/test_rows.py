"""Rows of Milvus as rows of the contract: ids, filters, dynamic fields, distances."""

from __future__ import annotations

import numpy as np
import pytest
from pymilvus import DataType
from tests.stores.milvus_store.conftest import (
    ADDED,
    DIM,
    NAMES,
    SHARED,
    STATE,
    VECTOR,
    fill,
    held,
    lift_all,
    lifted,
    mend,
    promote,
    row,
    vectors,
    written,
)

from crossfade.errors import BadInput, StoreError
from crossfade.stores import TOKEN, Range, open_store
from crossfade.stores.milvus import store as module


@pytest.mark.parametrize(
    ("metric", "distance"), [("L2", "l2"), ("IP", "dot"), ("COSINE", "cosine")]
)
def test_a_score_is_higher_where_a_row_is_nearer(file, client, metric, distance):
    old = fill(client, metric=metric)
    store = open_store(f"milvus:{file}#items")
    assert store.distance == distance
    query = np.array([1.0, 2.0, -1.0], np.float32)
    score = {
        "l2": -np.square(old - query).sum(axis=1),
        "dot": old @ query,
        "cosine": old @ query / np.linalg.norm(old, axis=1) / np.linalg.norm(query),
    }[distance]
    hits = store.search(query, column="vector", k=6)
    assert [hit.id for hit in hits] == np.argsort(-score).tolist()
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(score)[::-1], rtol=1e-5)
    lift_all(store)
    asked = lifted(query)[0].astype(np.float32)
    ours = store.search(asked, column=VECTOR, k=6)
    assert len(ours) == 6
    promote(store)
    again = store.search(asked, column="vector", k=6)
    assert [(h.id, pytest.approx(h.score)) for h in again] == [(h.id, h.score) for h in ours]
    store.close()
    with pytest.raises(BadInput, match="compares by"):
        open_store(f"milvus:{file}#items", distance="l2" if distance != "l2" else "dot")


def test_a_primary_key_of_any_name_is_the_id(file, client):
    schema = client.create_schema(auto_id=False)
    schema.add_field("sku", DataType.VARCHAR, is_primary=True, max_length=50)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=DIM)
    client.create_collection("items", schema=schema)
    client.insert("items", [{"sku": f"s{i}", "embedding": v} for i, v in enumerate(vectors())])
    # Nothing indexes it: by cosine, unless somebody says otherwise.
    store = open_store(f"milvus:{file}#items", distance="l2")
    assert (store.id, store.vector, store.distance) == ("sku", "embedding", "l2")
    assert store.search(vectors()[3], column="embedding", k=1)[0].id == "s3"
    with pytest.raises(BadInput, match="its primary key is 'sku'"):
        open_store(f"milvus:{file}#items", id="id")
    store.close()


def test_dynamic_fields_are_columns_and_go_along(file, client):
    old = fill(client, enable_dynamic_field=True)
    client.upsert("items", [{**row(i, old[i]), "tag": "red", "price": i / 2} for i in range(3)])
    store = open_store(f"milvus:{file}#items")
    assert {"tag", "price"} <= set(store.describe().columns)
    read = store.read([0, 1, 5], ["tag", "price"])
    assert read["tag"].to_pylist() == ["red", "red", None]
    lift_all(store)
    asked = lifted(old[0])[0].astype(np.float32)
    for column, query in (("vector", old[0]), (VECTOR, asked)):
        hits = store.search(query, column=column, k=6, where={"tag": "red"}, columns=["price"])
        assert {hit.id: hit.values["price"] for hit in hits} == {0: 0.0, 1: 0.5, 2: 1.0}
        within = store.search(query, column=column, k=6, where={"price": Range(0.4, 0.6)})
        assert [hit.id for hit in within] == [1]
    with pytest.raises(BadInput, match="no column 'colour'"):
        store.search(old[0], column="vector", k=1, where={"colour": "red"})
    promote(store)
    found = client.get("items", ids=[1, 5], output_fields=["*"])
    assert [one.get("tag") for one in found] == ["red", None]
    assert store.describe().dim == SHARED
    store.close()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"kind": 1.0}, {1, 4}),
        ({"kind": 1.5}, set()),
        ({"kind": "1"}, set()),
        ({"kind": True}, set()),
        ({"body": 3}, set()),
        ({"body": Range(1, 2)}, set()),
        ({"body": ["text 1", 'te"xt', "te\\xt"]}, {1}),
        ({"kind": []}, set()),
        ({"id": [0, 5]}, {0, 5}),
    ],
)
def test_values_of_another_kind_than_the_field_find_nothing(file, client, where, expected):
    old = fill(client)
    store = open_store(f"milvus:{file}#items")
    hits = store.search(old[0], column="vector", k=6, where=where)
    assert {hit.id for hit in hits} == expected
    store.close()


def test_a_filter_that_few_rows_pass_is_exact_and_one_that_many_pass_too(file, client, monkeypatch):
    old = fill(client, rows=300)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    query = lifted(old[17])[0].astype(np.float32)
    shared = lifted(old)
    cosines = shared @ query / np.linalg.norm(shared, axis=1) / np.linalg.norm(query)
    order = [int(i) for i in np.argsort(-cosines) if i % 3 == 2]
    for by_name in (10_000, 20):
        monkeypatch.setattr(module, "_BY_NAME", by_name)
        hits = store.search(query, column=VECTOR, k=30, where={"kind": 2})
        assert [hit.id for hit in hits] == order[:30]
    # The application's fields of now, and its rows of now.
    client.upsert("items", [{**row(order[0], old[order[0]]), "kind": 0}])
    client.delete("items", ids=[order[1]])
    hits = store.search(query, column=VECTOR, k=5, where={"kind": 2})
    assert [hit.id for hit in hits] == order[2:7]
    store.close()


def test_rows_that_miss_a_column_are_found_be_they_few_or_many(file, client, monkeypatch):
    old = fill(client, rows=60)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    late = vectors(40, seed=3)
    client.insert("items", [row(100 + i, vector) for i, vector in enumerate(late)])
    everything = np.vstack([old, late])
    query = everything[3]
    scores = late @ query / np.linalg.norm(late, axis=1)
    nearest = [100 + int(i) for i in np.argsort(-scores)[:5]]
    for by_name in (10_000, 10):
        monkeypatch.setattr(module, "_BY_NAME", by_name)
        found = store.search(query, column="vector", k=5, missing=STATE)
        assert [hit.id for hit in found] == nearest
    streamed = [key for rows in store.stream(["body"], missing=STATE, size=7) for key in
                rows["id"].to_pylist()]  # fmt: skip
    assert streamed == list(range(100, 140))
    store.close()


def test_a_token_changes_with_whatever_the_application_changes(file, client):
    old = fill(client)
    store = open_store(f"milvus:{file}#items")
    before = store.read([0, 1, 2, 3], [])[TOKEN].to_pylist()
    client.upsert("items", [row(0, old[1]), {**row(1, old[1]), "kind": 9}, row(2, old[2], "other")])
    client.upsert("items", [row(3, old[3])])
    after = store.read([0, 1, 2, 3], [])[TOKEN].to_pylist()
    assert [one == two for one, two in zip(before, after, strict=True)] == [False] * 3 + [True]
    store.close()


def test_vectors_that_say_nothing_pass_through(file, client):
    old = fill(client)
    client.upsert("items", [row(2, np.zeros(DIM, np.float32))])
    store = open_store(f"milvus:{file}#items")
    store.add_columns(ADDED)
    for rows in store.stream(["vector", *NAMES]):
        made = mend(rows)
        assert made["id"].to_pylist() == [0, 1, 3, 4, 5]
        store.write(made)
    assert store.tally(STATE) == {"lifted": 5, None: 1}
    # A row that loses its vector loses what was made of it.
    client.upsert("items", [row(4, np.zeros(DIM, np.float32))])
    promote(store)
    found = held(client)
    assert [key for key, (_, vector) in found.items() if not vector.any()] == [2, 4]
    np.testing.assert_allclose(found[5][1], lifted(old[5])[0], rtol=1e-6)
    store.close()


def test_ids_that_milvus_makes_are_an_obstacle(file, client):
    schema = client.create_schema(auto_id=True)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    client.create_collection("items", schema=schema)
    store = open_store(f"milvus:{file}#items")
    (found,) = store.obstacles()
    assert found.final
    assert "auto_id" in found.cause
    store.close()


def test_single_columns_cannot_be_dropped(file, client):
    fill(client)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    with pytest.raises(StoreError, match="drops no single fields"):
        store.drop_columns([STATE])
    assert store.describe().added == NAMES
    store.close()


def test_an_added_row_says_what_it_was_made_of(file, client):
    fill(client)
    store = open_store(f"milvus:{file}#items")
    lift_all(store)
    rows = store.read([1], ["vector"])
    client.upsert("items", [row(1, vectors()[2])])
    assert store.write(written(rows, "filled", **{TOKEN: rows[TOKEN]})) == 0
    assert store.read([1], [STATE])[STATE].to_pylist() == ["lifted"]
    assert store.erase(rows) == 0
    assert store.erase(store.read([1], [])) == 1
    assert store.read([1], [STATE])[STATE].to_pylist() == [None]
    store.close()
