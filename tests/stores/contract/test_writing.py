"""The contract of stores, writing: every statement here holds for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.apps import idle
from tests.stores.contract.conftest import (
    ADDED,
    PRINT,
    ROWS,
    SHARED,
    STATE,
    VECTOR,
    assert_kept,
    brute_force,
    written,
)

from crossfade.errors import BadInput, StoreError
from crossfade.stores import TOKEN, open_store
from crossfade.stores.rows import matrix


def test_added_columns_are_empty_then_written_then_read_back(app, added):
    assert set(added.describe().added) == {c.name for c in ADDED}
    assert added.tally(STATE.name) == {None: ROWS}
    rows = written(added, [0, 10, 20])
    assert added.write(rows) == 3
    assert added.tally(STATE.name) == {None: ROWS - 3, "forward": 3}
    back = added.read([10, 0, 2], [VECTOR.name, STATE.name, PRINT.name])
    assert back[STATE.name].to_pylist() == ["forward", "forward", None]
    assert back[PRINT.name].to_pylist() == [1, 0, None]
    assert_kept(app, matrix(back[VECTOR.name])[:2], matrix(rows[VECTOR.name])[[1, 0]])
    assert not back[VECTOR.name][2].is_valid


def test_writing_again_replaces(app, added):
    added.write(written(added, [0, 10]))
    again = written(added, [10], seed=9, state="new")
    assert added.write(again) == 1
    assert added.tally(STATE.name) == {None: ROWS - 2, "forward": 1, "new": 1}
    back = added.read([10], [VECTOR.name])
    assert_kept(app, matrix(back[VECTOR.name]), matrix(again[VECTOR.name]))


def test_adding_and_dropping_columns_twice_is_no_error(added):
    added.write(written(added, [0]))
    added.add_columns(ADDED)
    assert added.tally(STATE.name) == {None: ROWS - 1, "forward": 1}
    for _ in range(2):
        added.drop_columns([c.name for c in ADDED])
    assert added.describe().added == ()


def test_nothing_of_the_application_is_changed(app, added, old):
    added.write(written(added, list(range(0, 2 * ROWS, 2))))
    added.drop_columns([c.name for c in ADDED])
    kept = app.old()
    assert sorted(kept) == list(range(0, 2 * ROWS, 2))
    for i, vector in enumerate(old):
        assert_kept(app, kept[2 * i], vector)


def test_rows_that_are_gone_do_not_come_back(app, added):
    app.delete(10)
    assert added.write(written(added, [0, 10])) == 1
    assert added.describe().rows == ROWS - 1
    assert sum(added.tally(STATE.name).values()) == ROWS - 1


def test_a_row_that_changed_since_it_was_read_is_not_written(app, added, old):
    batch = added.read([0, 2, 4], [added.vector])
    app.change(2, "other", old[5])
    rows = written(added, [0, 2, 4], token=batch[TOKEN])
    # A store may refuse the batch as a whole; what it may not do is write the changed row.
    assert added.write(rows) in (0, 2)
    assert added.read([2], [STATE.name])[STATE.name].to_pylist() == [None]
    fresh = added.read([0, 2, 4], [added.vector])
    assert added.write(written(added, [0, 2, 4], token=fresh[TOKEN])) == 3
    assert added.tally(STATE.name)["forward"] == 3


def test_a_row_deleted_since_it_was_read_is_not_written(app, added):
    batch = added.read([0, 2], [added.vector])
    app.delete(2)
    assert added.write(written(added, [0, 2], token=batch[TOKEN])) in (0, 1)
    assert added.read([2], [STATE.name])[STATE.name].to_pylist() == []


def test_rows_that_come_later_have_nothing_in_added_columns(app, added, old):
    added.write(written(added, list(range(0, 2 * ROWS, 2))))
    app.insert([7, 9], ["late", "later"], [0, 1], old[:2])
    assert added.tally(STATE.name) == {"forward": ROWS, None: 2}


def test_promoting_leaves_one_vector_column(app, added):
    rows = written(added, list(range(0, 2 * ROWS, 2)))
    added.write(rows)
    name = added.promote(VECTOR.name, [STATE.name, PRINT.name], columns=(), work=idle)
    assert added.promote(VECTOR.name, [STATE.name, PRINT.name], columns=(), work=idle) == name
    added.close()
    again = open_store(app.place, vector=name)
    found = again.describe()
    assert (found.rows, found.dim, found.added) == (ROWS, SHARED, ())
    assert {"body", "kind"} <= set(found.columns)
    query = np.random.default_rng(9).normal(size=SHARED).astype(np.float32)
    hits = again.search(query, column=name, k=5, where={"kind": [0, 1, 2]}, columns=["body"])
    everyone = np.ones(ROWS, bool)
    assert [h.id for h in hits] == brute_force(matrix(rows[VECTOR.name]), query, everyone)[:5]
    assert hits[0].values["body"] == f"text {hits[0].id // 2}"
    again.close()


def test_a_shared_column_that_is_gone_is_an_error_of_ours(added):
    # Whoever searches while a migration ends sees the columns go.
    query = np.ones(SHARED, np.float32)
    added.drop_columns([column.name for column in ADDED])
    with pytest.raises((BadInput, StoreError)):
        added.search(query, column=VECTOR.name, k=3)
    try:
        assert set(added.tally(STATE.name)) <= {None}
    except (BadInput, StoreError) as error:
        assert STATE.name in str(error) or added.name in str(error)
