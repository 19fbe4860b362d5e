"""Columns, filters and changes of rows as Chroma has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.stores.chroma.app import folder_app
from tests.stores.chroma.world import ADDED, ROWS, VECTOR, fill, lift

from crossfade.errors import BadInput
from crossfade.stores import TOKEN, Range, open_store
from crossfade.testing.store_contract import written


@pytest.fixture
def app(tmp_path):
    """On a folder: what differs on a server is the way to it."""
    made = folder_app(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(app):
    fill(app)
    opened = open_store(app.address)
    yield opened
    opened.close()


def token(store, key):
    return store.read([key], [])[TOKEN].to_pylist()


def test_documents_and_metadata_are_columns(app, store):
    assert store.describe().columns == (
        "id", "embedding", "document", "body", "kind", "lang", "price",
    )  # fmt: skip
    rows = store.read([app.key(0), app.key(1)], ["document", "lang", "price"])
    assert rows["document"].to_pylist() == ["text 0", "text 1"]
    assert rows["lang"].to_pylist() == ["é", None]
    assert rows["price"].to_pylist() == [0.0, None]


@pytest.mark.parametrize(
    "change",
    [{"documents": ["other"]}, {"metadatas": [{"kind": 9}]}, {"uris": ["file:///x"]}],
)
def test_a_token_changes_with_whatever_the_application_changes(app, store, change):
    key = app.key(3)
    before, same = token(store, key), token(store, app.key(4))
    vector = app.open().get(ids=[key], include=["embeddings"])["embeddings"]
    app.open().update(ids=[key], embeddings=vector, **change)
    assert token(store, key) != before
    assert token(store, app.key(4)) == same


def test_a_token_changes_with_the_vector_alone(app, store):
    before = token(store, app.key(3))
    app.open().update(ids=[app.key(3)], embeddings=[np.arange(6.0)])
    assert token(store, app.key(3)) != before


def test_filters_are_by_metadata(app, store):
    query = np.ones(6, np.float32)
    found = store.search(query, column="embedding", k=ROWS, where={"price": Range(1, 2)})
    assert sorted(hit.id for hit in found) == [app.key(i) for i in (6, 9, 12)]
    mixed = store.search(query, column="embedding", k=ROWS, where={"lang": ["é", 3, True]})
    assert len(mixed) == 8
    assert store.search(query, column="embedding", k=3, where={"lang": []}) == []
    with pytest.raises(BadInput, match="filter by metadata"):
        store.search(query, column="embedding", k=3, where={"document": "text 1"})


def test_a_field_that_few_rows_have_is_found(app, store):
    app.insert([f"z{i:03d}" for i in range(150)], ["b"] * 150, [0] * 150, np.ones((150, 6)))
    app.open().update(ids=["z149"], metadatas=[{"rare": 1}])
    query = np.ones(6, np.float32)
    assert store.search(query, column="embedding", k=3, where={"rare": 2}) == []
    hits = store.search(query, column="embedding", k=3, where={"rare": 1})
    assert [hit.id for hit in hits] == ["z149"]


@pytest.mark.parametrize(("space", "distance"), [("l2", "l2"), ("ip", "dot")])
def test_scores_are_higher_for_nearer_rows_in_every_space(app, space, distance):
    app.space = space
    old = fill(app)
    store = open_store(app.address)
    assert store.distance == distance
    hits = store.search(old[3], column="embedding", k=ROWS)
    wanted = old @ old[3] if distance == "dot" else -np.square(old - old[3]).sum(axis=1)
    assert [hit.id for hit in hits] == [app.key(int(i)) for i in np.argsort(-wanted)]
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(wanted)[::-1], atol=1e-4)
    with pytest.raises(BadInput, match="compares by"):
        open_store(app.address, distance="cosine")
    lift(store)
    assert store.search(old[3] @ np.eye(6, 8, dtype="f4"), column=VECTOR.name, k=1)
    store.close()


def test_a_column_without_a_value_counts_as_missing(app, store):
    store.add_columns(ADDED)
    rows = written(store, [app.key(1), app.key(2)])
    at = rows.schema.get_field_index("crossfade_print")
    rows = rows.set_column(at, rows.schema.field(at), pa.array([5, None], pa.int64()))
    store.write(rows)
    missing = [k for b in store.stream([], missing="crossfade_print") for k in b["id"].to_pylist()]
    assert app.key(1) not in missing
    assert app.key(2) in missing


def test_a_row_that_goes_between_two_calls_fails_no_search(app, store):
    app.delete(app.key(2))
    ids = [app.key(i) for i in range(5)]
    found = store._at.main.query(np.ones(6, np.float32), 9, ids=ids)
    assert sorted(key for key, _ in found) == [key for key in ids if key != app.key(2)]
    assert store._at.main.query(np.ones(6, np.float32), 9, ids=[app.key(2)]) == []
