"""Batches into PostgreSQL, for every type of id: straight in at first, then over what is there."""

from __future__ import annotations

import uuid

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from tests.stores.postgres import fresh_database

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, open_store
from crossfade.stores.rows import matrix

ROWS, DIM = 40, 4
SHARED = "crossfade_vector"
IDS = {
    "smallint": list(range(-5, ROWS - 5)),
    "integer": list(range(ROWS)),
    "bigint": [2**40 + i for i in range(ROWS)],
    "text": [f"it's {i:03d}" for i in range(ROWS)],
    "varchar(20)": [f"Ä{i:03d}" for i in range(ROWS)],
    "uuid": [str(uuid.UUID(int=i)) for i in range(ROWS)],
}


@pytest.fixture(params=sorted(IDS))
def table(request):
    """A table with ids of this type, as (url, ids)."""
    url, ids = fresh_database(), IDS[request.param]
    with psycopg.connect(url) as connection:
        connection.execute(
            f"CREATE TABLE items (id {request.param} PRIMARY KEY, vector vector({DIM}))"
        )
        for i, key in enumerate(ids):
            vector = str([float(i + 1)] * DIM)
            connection.execute("INSERT INTO items VALUES (%s, %s)", [key, vector])
    return url, ids


@pytest.fixture
def store(table):
    opened = open_store(f"{table[0]}#items")
    opened.add_columns([Column(SHARED, "vector", DIM), Column("crossfade_state", "text")])
    yield opened
    opened.close()


def made(rows: pa.RecordBatch, factor: float) -> pa.RecordBatch:
    """What to write of these rows: their old vector times something."""
    found = {"id": rows["id"], SHARED: to_arrow(np.float32(factor) * matrix(rows["vector"]))}
    found["crossfade_state"] = pa.array([f"by {factor:.1f}"] * len(rows))
    return pa.RecordBatch.from_pydict(found | {TOKEN: rows[TOKEN]})


def written(store) -> dict:
    rows = store.read(next(iter(store.stream([])))["id"].to_pylist(), [SHARED, "crossfade_state"])
    there = rows.filter(rows["crossfade_state"].is_valid())
    return dict(zip(there["id"].to_pylist(), matrix(there[SHARED])[:, 0], strict=True))


def test_rows_go_in_for_the_first_time_and_again(store, table):
    ids = table[1]
    rows = next(iter(store.stream(["vector"])))
    assert store.write(made(rows.slice(0, 30), 2.0)) == 30
    assert written(store) == {key: 2.0 * (i + 1) for i, key in enumerate(ids[:30])}
    # Some of these are there and some are not.
    assert store.write(made(rows.slice(20, 20), 3.0)) == 20
    factors = [2.0] * 20 + [3.0] * 20
    assert written(store) == {key: factors[i] * (i + 1) for i, key in enumerate(ids)}


def test_rows_that_changed_or_went_since_they_were_read_do_not_go_in(store, table):
    url, ids = table
    rows = next(iter(store.stream(["vector"])))
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE items SET vector = vector + vector WHERE id = %s", [ids[3]])
        connection.execute("DELETE FROM items WHERE id = %s", [ids[7]])
    assert store.write(made(rows, 2.0)) == ROWS - 2
    assert sorted(map(str, written(store))) == sorted(
        str(key) for key in ids if key not in (ids[3], ids[7])
    )
    with psycopg.connect(url) as connection:
        beside = connection.execute("SELECT count(*) FROM crossfade_items").fetchone()
    assert beside == (ROWS - 2,)
