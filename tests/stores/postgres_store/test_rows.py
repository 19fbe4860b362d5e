"""Rows that miss something, rows that are erased, and what is known of a table without a look."""

from __future__ import annotations

import time
import uuid

import numpy as np
import psycopg
import pytest
from tests.stores.postgres import fresh_database
from tests.stores.postgres_store.table import (
    ADDED,
    NAMES,
    STATE,
    VECTOR,
    Table,
    lift,
    made,
    vectors,
)

from crossfade.stores import TOKEN, open_store
from crossfade.stores.rows import matrix

ROWS = 500


@pytest.fixture
def table():
    app = Table()
    app.create(vectors(ROWS))
    return app


@pytest.fixture
def store(table):
    opened = table.open()
    lift(opened)
    yield opened
    opened.close()


def ids(batches) -> list:
    return [key for batch in batches for key in batch["id"].to_pylist()]


@pytest.mark.parametrize("size", [3, 1000])
def test_rows_that_miss_a_column_come_in_order_and_in_batches(table, store, size):
    assert list(store.stream(["vector"], missing=STATE.name)) == []
    table.run("DELETE FROM crossfade_items WHERE mod(id, 50) = 7")
    late = vectors(4, seed=3)
    table.insert([1000, 1001, 1002, 2000], late)
    wanted = [*range(7, ROWS, 50), 1000, 1001, 1002, 2000]
    batches = list(store.stream(["vector", *NAMES], missing=STATE.name, size=size))
    assert ids(batches) == wanted
    assert max(map(len, batches)) <= size
    assert batches[-1][VECTOR.name].null_count == len(batches[-1])
    np.testing.assert_array_equal(matrix(batches[-1]["vector"])[-1], late[-1])
    rest = store.stream(["body"], missing=STATE.name, after=1000, size=size)
    assert ids(rest) == [1001, 1002, 2000]
    # They can be written with the token they came with.
    assert sum(store.write(made(batch)) for batch in batches) == len(wanted)
    assert list(store.stream([], missing=STATE.name)) == []


def test_everything_is_missing_at_first(table):
    with_none = table.open()
    with_none.add_columns(ADDED)
    assert ids(with_none.stream(["vector"], missing=STATE.name, size=70)) == list(range(ROWS))
    with_none.close()


def test_erased_rows_are_as_if_never_written(table, store):
    rows = store.read([1, 2, 3, 4], ["vector"])
    table.change(2, vectors(1, seed=5)[0])
    table.run("DELETE FROM items WHERE id = 4")
    given = rows.select(["id", TOKEN])
    assert store.erase(given) == 2
    # The answer to a lost answer is the same.
    assert store.erase(given) == 2
    assert store.read([1, 2, 3], [STATE.name])[STATE.name].to_pylist() == [None, "forward", None]
    assert ids(store.stream([], missing=STATE.name)) == [1, 3]
    assert store.tally(STATE.name) == {None: 2, "forward": ROWS - 3}
    assert store.erase(given.slice(0, 0)) == 0


def test_activity_is_another_one_when_rows_come_change_or_go(table, store):
    def after(act) -> None:
        before = store.activity()
        act()
        # The server tells it about a second late.
        while store.activity() == before:
            time.sleep(0.05)

    after(lambda: table.insert([900], vectors(1)))
    after(lambda: table.change(900, vectors(1)[0]))
    after(lambda: table.run("DELETE FROM items WHERE id = 900"))
    # Which row is the last is told at once, the counts follow.
    while store.activity() != f"{ROWS + 1}/1/1/{ROWS - 1}":
        time.sleep(0.05)
    assert store.activity() == store.activity()
    assert store.version() is None
    assert store.duplicates() == []


def test_a_row_of_a_session_that_goes_on_is_noticed_before_the_server_counts_it(table, store):
    """What a session does within a second of its last count is counted up to ten seconds later."""
    with psycopg.connect(table.url, autocommit=True) as application:
        before = store.activity()
        for key in (900, 901, 902):
            text = np.array2string(vectors(1)[0], separator=",", max_line_width=10**6)
            application.execute("INSERT INTO items (id, vector) VALUES (%s, %s)", [key, text])
            now = store.activity()
            assert now != before
            before = now


def test_activity_is_unknown_where_nothing_is_counted(table):
    name = table.run("SELECT current_database()")[0][0]
    table.run(f"ALTER DATABASE {name} SET track_counts = off")
    store = table.open()
    assert store.activity() is None
    store.close()


TEXTS = ["b", "B", "a", "Ä", "z", "it's", "_", "10", "9", "ab"]
KINDS = {
    "text": TEXTS,
    'text COLLATE "C"': TEXTS,
    'text COLLATE "pg_c_utf8"': TEXTS,
    "uuid": [str(uuid.UUID(int=n << 90 | 7)) for n in (31, 4, 15, 926, 53, 58, 97)],
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_text_ids_go_by_code_point_whatever_their_column_says(kind):
    url, keys = fresh_database(), KINDS[kind]
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE items (id {kind} PRIMARY KEY, vector vector(2))")
        for i, key in enumerate(keys):
            connection.execute("INSERT INTO items VALUES (%s, %s)", [key, f"[{i + 1},1]"])
    store = open_store(f"{url}#items")
    assert ids(store.stream(["vector"], size=2)) == sorted(keys)
    store.add_columns(ADDED)
    assert ids(store.stream(["vector"], missing=STATE.name, size=3)) == sorted(keys)
    first = sorted(keys)[:4]
    assert store.write(made(store.read(first, ["vector"]))) == 4
    assert ids(store.stream([VECTOR.name], missing=STATE.name, size=3)) == sorted(keys)[4:]
    assert ids(store.stream([VECTOR.name], after=first[0], size=3)) == sorted(keys)[1:]
    assert store.erase(store.read(first, []).select(["id", TOKEN])) == 4
    store.close()


def test_rows_that_are_near_each_other_enter_an_index_one_after_the_other():
    # Four groups, far apart, whose rows come by turns.
    groups, rows = np.eye(4, 16, dtype=np.float32) * 50, 1200
    table = Table()
    table.create(groups[np.arange(rows) % 4] + vectors(rows, seed=5))
    store = table.open()
    lift(store)
    store.build_index(VECTOR.name)
    fresh = made(next(iter(store.stream(["vector"]))), "new")
    assert store.write(fresh) == rows
    with psycopg.connect(table.url) as connection:
        found = connection.execute("SELECT id FROM crossfade_items ORDER BY ctid").fetchall()
    group = np.array([key for (key,) in found]) % 4
    assert (group[1:] == group[:-1]).mean() > 0.8
    store.close()
