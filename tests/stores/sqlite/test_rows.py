"""What is peculiar to rows of SQLite: ids, tokens, distances, and values of any type."""

from __future__ import annotations

import multiprocessing
import threading

import apsw
import numpy as np
import pytest
from tests.stores.sqlite.app import SqliteApp, Vec0App

from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.stores import TOKEN, Range, open_store
from crossfade.stores.rows import matrix, similarities
from crossfade.stores.sqlite import connection as connections
from crossfade.testing.store_contract import ADDED, DIM, SHARED, STATE, VECTOR, written

ROWS = 40
OLD = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)


def filled(app, ids=None):
    ids = list(range(ROWS)) if ids is None else ids
    count = len(ids)
    app.create(ids, [f"text {i}" for i in range(count)], [i % 5 for i in range(count)], OLD[:count])
    return open_store(app.address)


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


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE items SET body = 'other' WHERE id = 2",
        "UPDATE items SET kind = 99 WHERE id = 2",
        "UPDATE items SET vector = zeroblob(24) WHERE id = 2",
    ],
)
def test_a_row_is_another_one_whichever_of_its_columns_has_changed(app, change):
    store = filled(app)
    store.add_columns(ADDED)
    store.write(written(store, [39]))
    batch = store.read([1, 2, 3], [store.vector])
    app.run(change)
    assert store.write(written(store, [1, 2, 3], token=batch[TOKEN])) == 2
    assert store.read([1, 2, 3], [STATE.name])[STATE.name].to_pylist() == ["lifted", None, "lifted"]
    again = store.read([2], [store.vector])
    assert store.write(written(store, [2], token=again[TOKEN])) == 1
    assert store.erase(batch.select(["id", TOKEN])) == 2
    assert store.tally(STATE.name) == {None: ROWS - 2, "lifted": 2}
    store.close()


def test_what_others_commit_elsewhere_in_the_file_is_no_change_of_a_row(app):
    store = filled(app)
    store.add_columns(ADDED)
    batch = store.read([1, 2], [store.vector])
    app.run("CREATE TABLE other (x)")
    app.run("INSERT INTO other VALUES (1)")
    assert store.write(written(store, [1, 2], token=batch[TOKEN])) == 2
    # Read since, they need no second look: nobody has committed in between.
    batch = store.read([1, 2], [store.vector])
    assert store.write(written(store, [1, 2], seed=4, token=batch[TOKEN])) == 2
    store.close()


def test_tokens_of_another_opening_are_compared_by_what_the_rows_hold(app):
    store = filled(app)
    store.add_columns(ADDED)
    batch = store.read([1, 2], [store.vector])
    store.close()
    app.change(2, "other", OLD[9])
    again = open_store(app.address)
    assert again.write(written(again, [1, 2], token=batch[TOKEN])) == 1
    again.close()


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_every_distance_ranks_as_brute_force_does(app, distance):
    filled(app).close()
    store = open_store(app.address, distance=distance)
    store.add_columns(ADDED)
    rows = written(store, list(range(ROWS)))
    store.write(rows)
    for column, vectors in ((store.vector, OLD), (VECTOR.name, matrix(rows[VECTOR.name]))):
        query = np.random.default_rng(8).normal(size=vectors.shape[1]).astype(np.float32)
        scores = similarities(distance, vectors, query)
        for where, kept in ((None, np.ones(ROWS, bool)), ({"kind": 3}, np.arange(ROWS) % 5 == 3)):
            order = [int(i) for i in np.argsort(-scores) if kept[i]][:6]
            hits = store.search(query, column=column, k=6, where=where)
            assert [hit.id for hit in hits] == order
            np.testing.assert_allclose([hit.score for hit in hits], scores[order], rtol=1e-4)
    store.close()


def test_rows_without_a_direction_are_no_hits(app):
    store = filled(app)
    app.change(3, "zero", np.zeros(DIM))
    app.change(4, "broken", np.full(DIM, np.nan))
    hits = store.search(OLD[3], column=store.vector, k=ROWS)
    assert {hit.id for hit in hits} == set(range(ROWS)) - {3, 4}
    assert next(hit.id for hit in store.search(OLD[5], column=store.vector, k=3)) == 5
    store.close()


def test_an_added_column_finds_no_row_that_has_gone(app):
    store = filled(app)
    store.add_columns(ADDED)
    store.write(written(store, list(range(ROWS))))
    for key in range(30):
        app.delete(key)
    hits = store.search(np.ones(SHARED, np.float32), column=VECTOR.name, k=8)
    assert len(hits) == 8
    assert all(hit.id >= 30 for hit in hits)
    assert store.tally(STATE.name) == {"lifted": 10}
    store.close()


@pytest.mark.parametrize(
    "where",
    [
        {"kind": 1},
        {"kind": [1, 3]},
        {"kind": Range(1.5, 3.5)},
        {"kind": True},
        {"kind": "1"},
        {"body": 7},
        {"kind": []},
        {"part": "b"},
        {"part": ["a", "b"]},
        {"price": Range(most=0.5)},
        {"price": 0.25},
        {"body": "text 7"},
        {"part": "a", "kind": [0, 1, 2], "price": Range(0.1, 0.8)},
        {"part": Range(0, 1)},
    ],
)
def test_vec0_filters_as_an_ordinary_table_does(vec0, where):
    blobs = "CREATE TABLE plain (id INTEGER PRIMARY KEY, vector BLOB, body TEXT, kind INTEGER, "
    vec0.run(blobs + "part TEXT, price REAL)")
    vec0.run(
        "CREATE VIRTUAL TABLE items USING vec0(vector float[6] distance_metric=cosine, +body text, "
        "kind integer, part text partition key, price float)"
    )
    for i in range(ROWS):
        row = (OLD[i].tobytes(), f"text {i}", i % 5, "abc"[i % 3], i / ROWS)
        vec0.run("INSERT INTO plain VALUES (?, ?, ?, ?, ?, ?)", i, *row)
        vec0.run(
            "INSERT INTO items (rowid, vector, body, kind, part, price) VALUES (?, ?, ?, ?, ?, ?)",
            i,
            *row,
        )
    found = []
    for table in ("plain", "items"):
        store = open_store(f"sqlite:{vec0.path}#{table}")
        hits = store.search(OLD[0], column="vector", k=9, where=where, columns=["body"])
        found.append([(hit.id, round(hit.score, 5), hit.values["body"]) for hit in hits])
        store.close()
    assert found[0] == found[1]


def test_vec0_says_how_it_compares(vec0):
    vec0.run("CREATE VIRTUAL TABLE a USING vec0(e float[4])")
    vec0.run("CREATE VIRTUAL TABLE b USING vec0(e float[4] distance_metric=L1)")
    vec0.run("CREATE VIRTUAL TABLE c USING vec0(e int8[4])")
    store = open_store(f"sqlite:{vec0.path}#a")
    assert (store.distance, store.id, store.vector) == ("l2", "rowid", "e")
    store.close()
    with pytest.raises(BadInput, match="compares by l1"):
        open_store(f"sqlite:{vec0.path}#b")
    open_store(f"sqlite:{vec0.path}#b", distance="cosine").close()
    with pytest.raises(BadInput, match="only float vectors"):
        open_store(f"sqlite:{vec0.path}#c")


def test_ids_of_text_sort_by_code_point_whatever_the_column_does(blob):
    blob.run(
        "CREATE TABLE items (id TEXT PRIMARY KEY COLLATE NOCASE, body TEXT, kind INTEGER, "
        "vector BLOB) WITHOUT ROWID"
    )
    ids = ["b", "A", "c", "Z", "a2", "ä", "\U0001f600", "￿"]
    blob.insert(ids, ids, [0] * len(ids), OLD[: len(ids)])
    store = open_store(blob.address)
    found = [key for rows in store.stream([], size=3) for key in rows["id"].to_pylist()]
    assert found == sorted(ids)
    store.add_columns(ADDED)
    assert store.write(written(store, ids)) == len(ids)
    assert store.tally(STATE.name) == {"lifted": len(ids)}
    store.close()


def test_refuses_what_no_migration_can_go_by(blob):
    blob.run("CREATE TABLE many (a INTEGER, b INTEGER, vector BLOB, PRIMARY KEY (a, b))")
    blob.run("CREATE TABLE none (id INTEGER PRIMARY KEY, body TEXT)")
    blob.run("CREATE TABLE two (id INTEGER PRIMARY KEY, x BLOB, y BLOB)")
    blob.run("CREATE VIEW seen AS SELECT * FROM two")
    place = f"sqlite:{blob.path}"
    with pytest.raises(BadInput, match="no primary key of one column"):
        open_store(f"{place}#many")
    with pytest.raises(BadInput, match="no column of BLOBs"):
        open_store(f"{place}#none")
    with pytest.raises(BadInput, match="2 columns that may hold vectors"):
        open_store(f"{place}#two")
    with pytest.raises(BadInput, match="is a view"):
        open_store(f"{place}#seen")
    with pytest.raises(BadInput, match="its tables are many, none, two"):
        open_store(f"{place}#nothing")
    with pytest.raises(BadInput, match=r"names no table.*there are many, none, two"):
        open_store(place)
    with pytest.raises(BadInput, match="there is no such file"):
        open_store(f"sqlite:{blob.path}x#items")
    assert not blob.path.with_name("shop.dbx").exists()
    blob.path.with_name("text.db").write_text("no database, " * 100)
    with pytest.raises(BadInput, match="is no database of SQLite"):
        open_store(f"sqlite:{blob.path.with_name('text.db')}#items")


def test_names_the_row_whose_vector_is_of_another_kind(blob):
    store = filled(blob)
    blob.run("UPDATE items SET vector = zeroblob(20) WHERE id = 5")
    with pytest.raises(BadInput, match="row 5 is of 5 dimensions, and others of 6"):
        store.read([4, 5], [store.vector])
    blob.run("UPDATE items SET vector = '[1, 2]' WHERE id = 5")
    with pytest.raises(BadInput, match="row 5 is of no BLOB"):
        list(store.stream([store.vector]))
    store.close()


def test_ids_of_two_types_or_none_are_named(blob):
    blob.run("CREATE TABLE items (id PRIMARY KEY, body TEXT, kind INTEGER, vector BLOB)")
    blob.insert([1, 2], ["a", "b"], [0, 0], OLD[:2])
    store = open_store(blob.address)
    blob.insert(["x"], ["c"], [0], OLD[2:3])
    with pytest.raises(BadInput, match="has the id 'x'"):
        list(store.stream([]))
    blob.delete("x")
    blob.insert([None], ["c"], [0], OLD[2:3])
    assert store.duplicates() == [None]
    store.close()


def test_columns_of_any_type_come_along(blob):
    blob.run("CREATE TABLE items (id INTEGER PRIMARY KEY, vector BLOB, price REAL, any, mixed)")
    for i, mixed in enumerate((1, "x")):
        said = "INSERT INTO items VALUES (?, ?, ?, ?, ?)"
        blob.run(said, i, OLD[i].tobytes(), 0.5, b"\0bytes", mixed)
    store = open_store(blob.address, vector="vector")
    rows = store.read([0, 1], ["price", "any"])
    assert rows["price"].to_pylist() == [0.5, 0.5]
    assert rows["any"].to_pylist() == [b"\0bytes"] * 2
    with pytest.raises(BadInput, match="values of several types"):
        store.read([0, 1], ["mixed"])
    store.close()


def test_a_file_that_somebody_holds_is_an_error_in_the_end(app, monkeypatch):
    monkeypatch.setattr(connections, "_PATIENCE", 50)
    store = filled(app)
    app.run("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another connection"):
        store.put("x", "y")
    app.run("ROLLBACK")
    store.put("x", "y")
    assert store.get("x") == "y"
    store.close()


def test_many_threads_share_a_store(app):
    store = filled(app)
    store.add_columns(ADDED)
    failed = []

    def act(part):
        try:
            for key in range(part, ROWS, 4):
                store.write(written(store, [key]))
                assert len(store.search(OLD[key], column=store.vector, k=3)) == 3
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=act, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.tally(STATE.name) == {"lifted": ROWS}
    store.close()


def test_a_process_that_is_forked_off_has_connections_of_its_own(app):
    store = filled(app)
    store.put("x", "before")

    def act(store, answers):
        store.put("x", "after")
        answers.put(len(store.search(OLD[0], column=store.vector, k=3)))

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=act, args=(store, answers))
    child.start()
    assert answers.get(timeout=30) == 3
    child.join()
    assert store.get("x") == "after"
    store.close()


@pytest.mark.parametrize("package", ["apsw", "sqlite_vec"])
def test_a_missing_package_names_the_line_to_install_it(blob, monkeypatch, package):
    filled(blob).close()
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'crossfade\[sqlite\]'"):
        open_store(blob.address)


def test_text_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "wide.db"
    made = apsw.Connection(str(path))
    made.execute("PRAGMA encoding = 'UTF-16'")
    made.execute("CREATE TABLE items (id TEXT PRIMARY KEY, vector BLOB)")
    made.close()
    with pytest.raises(BadInput, match="not that of code points"):
        open_store(f"sqlite:{path}#items")
