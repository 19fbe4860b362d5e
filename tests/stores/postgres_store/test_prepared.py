"""Searches that come again and again are planned once, where that can be relied upon."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.postgres_store.proxy import Pooler
from tests.stores.postgres_store.table import VECTOR, Table, lift, vectors

QUERIES = vectors(6, seed=4)


@pytest.fixture
def table():
    app = Table()
    app.create(vectors(500))
    return app


@pytest.fixture
def store(table):
    opened = table.open()
    yield opened
    opened.close()


@pytest.fixture
def expected(table):
    """By a store that searches for each query once."""
    out = []
    for query in QUERIES:
        opened = table.open()
        out.append(found(opened, query))
        opened.close()
    return out


def found(store, query: np.ndarray, **named) -> list:
    hits = store.search(query, column="vector", k=5, **named)
    return [(hit.id, hit.score, dict(hit.values)) for hit in hits]


def prepared(store) -> list[str]:
    """Searches, of one thread's operations, which have one connection."""
    found = store._pool.execute("SELECT statement FROM pg_prepared_statements")
    return [text for (text,) in found if "crossfade_distance" in text]


def test_what_is_the_same_but_for_the_query_is_planned_once(store, expected):
    assert [found(store, query) for query in QUERIES] == expected
    assert len(prepared(store)) == 1
    lift(store)
    for query in QUERIES:
        both = store.search_both(
            query, query, np.ones(24, np.float32), column=VECTOR.name, state="crossfade_state", k=5
        )
        assert len(both.hits) >= 5
    assert sum("vector_send" in text for text in prepared(store)) == 1
    # Filters hold values: each would be another statement to keep.
    before = prepared(store)
    for kind in range(3):
        found(store, QUERIES[0], where={"kind": kind})
    assert prepared(store) == before


def test_a_column_that_changes_its_type_stops_no_search(table, store):
    before = found(store, QUERIES[0], columns=["body"])
    table.run("ALTER TABLE items ALTER body TYPE varchar(20)")
    assert found(store, QUERIES[0], columns=["body"]) == before
    assert found(store, QUERIES[0], columns=["body"]) == before


def test_statements_that_another_has_dropped_are_planned_anew(store, expected):
    assert found(store, QUERIES[0]) == expected[0]
    # As a pooler of sessions does between one client and the next.
    store._pool.retry(lambda connection: connection.pgconn.exec_(b"DEALLOCATE ALL"))
    assert [found(store, query) for query in QUERIES] == expected


def test_behind_a_pooler_nothing_is_prepared(table, expected):
    pooler = Pooler(table.url)
    try:
        store = table.open(pooler.url)
        assert [found(store, query) for query in QUERIES] == expected
        assert not prepared(store)
        store.close()
    finally:
        pooler.close()
