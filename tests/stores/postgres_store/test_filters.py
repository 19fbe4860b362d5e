"""Filtered searches find k rows whenever k rows pass, and the nearest ones, whoever asks."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from tests.stores.postgres_store.table import DIM, VECTOR, Table, lift, lifted, vectors

ROWS, K, QUERIES = 12_000, 10, 30
SHARES = (0.2, 0.1, 0.01, 0.001)


@pytest.fixture(scope="module")
def world():
    """A table with one column of filters for each share, that go with the vectors or do not."""
    old, rng = vectors(ROWS), np.random.default_rng(4)
    along = old @ rng.normal(size=DIM)
    places = {"along": np.argsort(np.argsort(along)), "apart": rng.permutation(ROWS)}
    kinds = {
        f"{how}_{i}": (place < share * ROWS).astype(int)
        for how, place in places.items()
        for i, share in enumerate(SHARES)
    }
    table = Table()
    table.create(old)
    for name in kinds:
        table.run(f"ALTER TABLE items ADD COLUMN {name} int")
    rows = [[*(int(v[i]) for v in kinds.values()), i] for i in range(ROWS)]
    sets = ", ".join(f"{name} = %s" for name in kinds)
    with psycopg.connect(table.url) as connection, connection.cursor() as cursor:
        cursor.executemany(f"UPDATE items SET {sets} WHERE id = %s", rows)  # noqa: S608
    table.index()
    table.run("VACUUM (FULL, ANALYZE) items")
    url, role = table.role("reader", "SELECT")
    store = table.open()
    lift(store)
    store.build_index(VECTOR.name)
    store.close()
    table.run(f"GRANT SELECT ON crossfade_items TO {role}")
    return table, url, old, kinds


def nearest(rows: np.ndarray, query: np.ndarray, keep: np.ndarray) -> list[int]:
    scores = rows @ query / np.linalg.norm(rows, axis=1)
    scores[~keep] = -np.inf
    return np.argsort(-scores)[: min(K, keep.sum())].tolist()


def recall(store, column: str, rows: np.ndarray, name: str, keep: np.ndarray) -> float:
    found = []
    for query in rows[np.random.default_rng(1).permutation(len(rows))[:QUERIES]]:
        query = query + 0.3 * np.random.default_rng(2).normal(size=len(query)).astype(np.float32)
        hits = store.search(query, column=column, k=K, where={name: 1})
        assert len(hits) == min(K, keep.sum())
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
        found.append(len({h.id for h in hits} & set(nearest(rows, query, keep))) / len(hits))
    return float(np.mean(found))


@pytest.mark.parametrize("how", ["along", "apart"])
@pytest.mark.parametrize("share", range(len(SHARES)))
def test_an_ordinary_role_finds_the_nearest_rows_that_pass(world, how, share):
    table, url, old, kinds = world
    name, keep = f"{how}_{share}", kinds[f"{how}_{share}"] == 1
    store = table.open(url)
    assert recall(store, "vector", old, name, keep) >= 0.95
    assert recall(store, VECTOR.name, lifted(old), name, keep) >= 0.95
    store.close()


def test_rows_that_miss_a_column_are_found_however_few_they_are(world):
    table, url, old, kinds = world
    gone = [5, 77, 4001, 9999]
    table.run("DELETE FROM crossfade_items WHERE id = ANY(%s)", gone)
    store = table.open(url)
    query = vectors(1, seed=9)[0]
    hits = store.search(query, column="vector", k=K, missing="crossfade_state")
    keep = np.isin(np.arange(ROWS), gone)
    assert [h.id for h in hits] == nearest(old, query, keep)
    kept = keep & (kinds["apart_0"] == 0)
    hits = store.search(
        query, column="vector", k=K, missing="crossfade_state", where={"apart_0": 0}
    )
    assert [h.id for h in hits] == nearest(old, query, kept)
    store.close()


@pytest.mark.parametrize("how", ["hnsw (vector vector_l2_ops)", "ivfflat (vector vector_l2_ops)"])
def test_many_rows_are_found_where_an_index_looks_at_fewer(how):
    table, old = Table(), vectors(3000)
    table.create(old)
    table.index(how=how)
    store = table.open()
    query = vectors(1, seed=9)[0]
    hits = store.search(query, column="vector", k=2500)
    expected = np.argsort(np.square(old - query).sum(axis=1))[:2500]
    assert len(hits) == 2500
    assert len({h.id for h in hits} & set(expected.tolist())) >= 0.95 * 2500
    store.close()


def test_the_dead_of_the_side_table_do_not_cost_hits():
    """Rows that the application deleted are still in the index of the table beside."""
    table, old = Table(), vectors(2000)
    table.create(old)
    store = table.open()
    lift(store)
    store.build_index(VECTOR.name)
    query = lifted(old[3])[0]
    near = [h.id for h in store.search(query, column=VECTOR.name, k=400)]
    table.run("DELETE FROM items WHERE id = ANY(%s)", near)
    hits = store.search(query, column=VECTOR.name, k=K)
    keep = ~np.isin(np.arange(2000), near)
    assert [h.id for h in hits] == nearest(lifted(old), query, keep)
    store.close()


def test_zero_vectors_are_no_hits():
    table, old = Table(), vectors(20)
    old[4] = 0
    table.create(old)
    store = table.open()
    hits = store.search(old[0], column="vector", k=20)
    assert len(hits) == 19 and 4 not in {h.id for h in hits}
    store.close()
