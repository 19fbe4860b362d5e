"""What hangs on a table of SQLite when its vectors change places."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.sqlite.app import SqliteApp, Vec0App

from crossfade.stores import open_store
from crossfade.testing.store_contract import ADDED, DIM, SHARED, STATE, VECTOR, written

ROWS = 12
OLD = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
NAMES = [column.name for column in ADDED]


@pytest.fixture
def blob(tmp_path):
    made = SqliteApp(tmp_path)
    yield made
    made.close()


@pytest.fixture
def vec0(tmp_path):
    made = Vec0App(tmp_path)
    yield made
    made.close()


def insert(app, **more):
    for i in range(ROWS):
        row = {"id": i, "body": f"text {i}", "vector": OLD[i].tobytes()}
        row |= {name: value(i) for name, value in more.items()}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        app.run(f"INSERT INTO items ({names}) VALUES ({marks})", *row.values())  # noqa: S608


def promote(app, ids=range(ROWS)):
    store = open_store(app.address, vector="vector")
    store.add_columns(ADDED)
    rows = written(store, list(ids))
    store.write(rows)
    store.promote(VECTOR.name, NAMES, columns=["vector"], work=lambda rows: None)
    store.close()
    return dict(zip(ids, rows[VECTOR.name].to_pylist(), strict=True))


def test_triggers_that_do_not_speak_of_it_stay_and_are_not_set_off(blob):
    blob.run("CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT, vector BLOB)")
    blob.run("CREATE TABLE told (id INTEGER)")
    blob.run(
        "CREATE TRIGGER tell AFTER UPDATE ON items BEGIN INSERT INTO told VALUES (NEW.id); END"
    )
    blob.run(
        "CREATE TRIGGER other AFTER INSERT ON items BEGIN "
        "UPDATE told SET id = length(NEW.vector) WHERE id < 0; END"
    )
    insert(blob)
    store = open_store(blob.address)
    assert store.obstacles() == []
    store.close()
    promote(blob)
    assert blob.run("SELECT count(*) FROM told") == [(0,)]
    blob.run("UPDATE items SET body = 'x' WHERE id = 3")
    assert blob.run("SELECT id FROM told") == [(3,)]


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (
            "CREATE TRIGGER t AFTER UPDATE OF vector ON items BEGIN SELECT 1; END",
            "the trigger 't' speaks of 'vector'",
        ),
        (
            "CREATE TRIGGER t AFTER UPDATE ON items BEGIN "
            "INSERT INTO told VALUES (length(NEW.vector)); END",
            "the trigger 't' speaks of 'vector'",
        ),
    ],
)
def test_triggers_that_speak_of_it_are_in_the_way(blob, made, cause):
    blob.run("CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT, vector BLOB)")
    blob.run("CREATE TABLE told (id INTEGER)")
    insert(blob)
    blob.run(made)
    store = open_store(blob.address)
    assert [(found.cause, found.final) for found in store.obstacles()] == [(cause, True)]
    store.close()


def test_a_check_of_its_length_is_in_the_way(blob):
    blob.run(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT CHECK (length(body) > 0), vector "
        f"float[{DIM}] CHECK (typeof(vector) = 'blob' AND vec_length(vector) = {DIM}))"
    )
    insert(blob)
    store = open_store(blob.address)
    assert [found.cause.split(",")[0] for found in store.obstacles()] == [
        "a CHECK of the table speaks of 'vector'"
    ]
    store.close()


def test_indexes_views_and_generated_columns_are_as_they_were(blob):
    blob.run(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT, vector BLOB, "
        "size INTEGER GENERATED ALWAYS AS (length(vector) / 4))"
    )
    blob.run("CREATE INDEX by_vector ON items (vector)")
    blob.run("CREATE VIEW sizes AS SELECT id, size FROM items")
    insert(blob)
    new = promote(blob)
    assert blob.run("SELECT DISTINCT size FROM sizes") == [(SHARED,)]
    blob_of = np.array(new[4], np.float32).tobytes()
    found = blob.run("SELECT id FROM items INDEXED BY by_vector WHERE vector = ?", blob_of)
    assert found == [(4,)]
    assert blob.run("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize(("declared", "left"), [("BLOB", None), ("BLOB NOT NULL", b"\0" * 32)])
def test_rows_without_a_shared_vector_have_none_or_zeros_where_there_must_be_one(
    blob, declared, left
):
    blob.run(f"CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT, vector {declared})")
    insert(blob)
    promote(blob, range(1, ROWS))
    assert blob.run("SELECT vector FROM items WHERE id = 0") == [(left,)]


def test_a_vec0_table_keeps_all_that_it_was_declared_with(vec0):
    vec0.run(
        "CREATE VIRTUAL TABLE items USING vec0(id integer primary key, "
        f"vector float[{DIM}] distance_metric=cosine, +body text, kind integer, "
        "lang text partition key, good boolean, price float, other float[2], chunk_size=16)"
    )
    vec0.run("CREATE VIEW bodies AS SELECT id, body FROM items")
    insert(
        vec0,
        kind=lambda i: i % 3,
        lang=lambda i: "de" if i % 2 else "en",
        good=lambda i: i % 2 == 0,
        price=lambda i: i / 4,
        other=lambda i: np.array([i, -i], np.float32).tobytes(),
    )
    names = "id, body, kind, lang, good, price, other"
    before = vec0.run(f"SELECT {names} FROM items ORDER BY id")  # noqa: S608
    new = promote(vec0, range(1, ROWS))
    assert vec0.run(f"SELECT {names} FROM items ORDER BY id") == before  # noqa: S608
    assert vec0.run("SELECT count(*) FROM bodies") == [(ROWS,)]
    (sql,) = vec0.run("SELECT sql FROM sqlite_schema WHERE name = 'items'")[0]
    for said in (f"vector float[{SHARED}] distance_metric=cosine", "+body text", "chunk_size=16"):
        assert said in sql
    for said in ("lang text partition key", "good boolean", "other float[2]"):
        assert said in sql
    found = {key: np.frombuffer(blob, np.float32) for key, blob in
             vec0.run("SELECT id, vector FROM items")}  # fmt: skip
    assert not found[0].any()
    for key, vector in new.items():
        np.testing.assert_array_equal(found[key], np.array(vector, np.float32))
    query = np.array(new[5], np.float32).tobytes()
    nearest = vec0.run(
        "SELECT id FROM items WHERE vector MATCH ? AND k = 1 AND lang = 'de' AND kind = 2", query
    )
    assert nearest == [(5,)]


def test_what_is_said_beforehand_is_what_can_be_said(app):
    app.create(list(range(ROWS)), ["x"] * ROWS, [0] * ROWS, OLD)
    store = open_store(app.address)
    told = store.statements(ADDED)
    for step in ("start", "finish"):
        for statement in told[step]:
            app.run(statement)
    assert app.run("SELECT count(*) FROM items") == [(ROWS,)]
    # Nothing was written in between, so that no row has a new vector.
    assert {vector for (vector,) in app.run("SELECT vector FROM items")} in (
        {None},
        {bytes(4 * SHARED)},
    )
    assert app.run("SELECT name FROM sqlite_schema WHERE name LIKE 'crossfade%'") == []
    store.close()


def test_the_key_of_text_is_carried_too(vec0):
    ids = ["b", "a", "ä"]
    vec0.create(ids, ids, [0, 1, 2], OLD[:3])
    store = open_store(vec0.address)
    store.add_columns(ADDED)
    rows = written(store, ids)
    store.write(rows)
    store.promote(VECTOR.name, NAMES, columns=[STATE.name], work=lambda rows: None)
    assert {key: len(vector) for key, vector in vec0.old().items()} == dict.fromkeys(ids, SHARED)
    assert vec0.run("SELECT body FROM items WHERE id = 'ä'") == [("ä",)]
    store.close()
