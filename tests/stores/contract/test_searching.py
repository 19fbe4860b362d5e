"""The contract of stores, searching: every statement here holds for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.contract.conftest import (
    DIM,
    ROWS,
    SHARED,
    STATE,
    VECTOR,
    _kinds,
    brute_force,
    written,
)

from crossfade import Range
from crossfade.errors import BadInput
from crossfade.stores.rows import matrix


def test_searches_the_old_vectors_like_brute_force(store, old):
    query = np.random.default_rng(5).normal(size=DIM).astype(np.float32)
    hits = store.search(query, column=store.vector, k=10, columns=["body"])
    expected = brute_force(old, query, np.ones(ROWS, bool))[:10]
    assert [hit.id for hit in hits] == expected
    best = old[expected[0] // 2]
    cosine = best @ query / np.linalg.norm(best) / np.linalg.norm(query)
    assert hits[0].score == pytest.approx(cosine, abs=1e-5)
    assert hits[0].values == {"body": f"text {expected[0] // 2}"}


@pytest.mark.parametrize(
    "within", [Range(1, 2), Range(least=1), Range(most=1.5), Range(1, 1), Range(5, 9), Range(2, 1)]
)
def test_searches_with_a_range(store, old, within):
    query = np.random.default_rng(6).normal(size=DIM).astype(np.float32)
    kinds = np.array(_kinds(ROWS), float)
    low = -np.inf if within.least is None else within.least
    high = np.inf if within.most is None else within.most
    hits = store.search(query, column=store.vector, k=ROWS, where={"kind": within})
    keep = (kinds >= low) & (kinds <= high)
    assert [hit.id for hit in hits] == brute_force(old, query, keep)


@pytest.mark.parametrize("ends", [(None, None), ("a", None), (True, 2), (float("nan"), 1)])
def test_a_range_is_of_numbers(ends):
    with pytest.raises(BadInput, match="a range from"):
        Range(*ends)


@pytest.mark.parametrize("where", [{"kind": 1}, {"kind": [0, 2]}, {"kind": 2, "body": "text 5"}])
def test_searches_with_a_filter(store, old, where):
    query = np.random.default_rng(6).normal(size=DIM).astype(np.float32)
    kinds = np.array(_kinds(ROWS))
    keep = np.isin(kinds, where["kind"])
    if "body" in where:
        keep &= np.arange(ROWS) == 5
    hits = store.search(query, column=store.vector, k=ROWS, where=where)
    assert [hit.id for hit in hits] == brute_force(old, query, keep)


def test_searches_an_added_column_among_the_rows_that_have_it(added):
    rows = written(added, list(range(0, 40, 2)))
    added.write(rows)
    query = np.random.default_rng(7).normal(size=SHARED).astype(np.float32)
    hits = added.search(query, column=VECTOR.name, k=ROWS, where={"kind": [0, 1]})
    keep = np.isin(_kinds(20), [0, 1])
    assert [h.id for h in hits] == brute_force(matrix(rows[VECTOR.name]), query, keep)


def test_searches_the_rows_that_miss_an_added_column(app, added, old):
    added.write(written(added, list(range(0, 2 * ROWS, 2))))
    query = old[3]
    assert added.search(query, column=added.vector, k=5, missing=STATE.name) == []
    app.insert([7], ["late"], [0], old[3:4])
    hits = added.search(query, column=added.vector, k=5, missing=STATE.name)
    assert [hit.id for hit in hits] == [7]


def test_an_index_finds_what_brute_force_finds(added):
    rows = written(added, list(range(0, 2 * ROWS, 2)))
    added.write(rows)
    added.build_index(VECTOR.name)
    added.build_index(VECTOR.name)
    query = np.random.default_rng(8).normal(size=SHARED).astype(np.float32)
    hits = added.search(query, column=VECTOR.name, k=5)
    everyone = np.ones(ROWS, bool)
    assert [h.id for h in hits] == brute_force(matrix(rows[VECTOR.name]), query, everyone)[:5]


def test_refuses_filters_that_are_not_there_or_not_values(store):
    query = np.ones(DIM, np.float32)
    with pytest.raises(BadInput, match="nothing"):
        store.search(query, column=store.vector, k=1, where={"nothing": 1})
    with pytest.raises(BadInput, match="filter on 'kind'"):
        store.search(query, column=store.vector, k=1, where={"kind": object()})
    # A value is a value, never a piece of a statement.
    nasty = "x'); DROP TABLE items; --"
    assert store.search(query, column=store.vector, k=1, where={"body": nasty}) == []
    assert store.describe().rows == ROWS
