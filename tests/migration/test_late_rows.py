"""Rows without a shared vector are found by looking, never by counting."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tests.migration.conftest import ROWS, lifted_of, shared_of, texts_of

from crossfade.errors import NotProven
from crossfade.search.searcher import LateRows
from crossfade.stores.rows import matrix

EMPTY = [3, 4, 5]


@pytest.fixture
def with_gaps(world, migration):
    """A store three of whose rows had no old vector when all were lifted."""
    for key in EMPTY:
        world.app.empty(key)
    migration.start(source="body", force=True)
    done = migration.forward()
    assert (done.written, done.unusable, done.first_unusable) == (ROWS - 3, 3, EMPTY)
    status = migration.status()
    assert (status.old, status.late, status.unusable) == (3, 0, 3)
    assert migration.verify().passed
    return migration


def fill(world, keys):
    for key in keys:
        text = world.texts[key]
        world.app.change(key, text, world.models.old([text])[0])


def test_rows_that_become_usable_are_late_rows(world, with_gaps):
    fill(world, EMPTY)
    assert with_gaps.status().late == 3
    assert not with_gaps.verify().passed
    query = world.models.new([world.texts[4]])[0]
    assert 4 in [hit.id for hit in with_gaps.searcher(refresh=0).search(query, k=10)]
    with pytest.raises(NotProven, match="3 rows have no shared vector"):
        with_gaps.finish()
    assert with_gaps.forward().written == 3
    assert with_gaps.status().late == 0
    with_gaps.finish(force=True)
    rows = with_gaps.store.read(list(range(ROWS)), [with_gaps.store.vector])
    assert rows[with_gaps.store.vector].null_count == 0


def test_unusable_rows_that_go_do_not_hide_others_that_come(world, with_gaps):
    for key in EMPTY:
        world.app.delete(key)
    texts = texts_of(3, seed=8)
    world.app.insert([9000, 9001, 9002], texts, [0] * 3, world.models.old(texts))
    status = with_gaps.status()
    assert (status.late, status.unusable) == (3, 0)
    query = world.models.new(texts[1:2])[0]
    assert 9001 in [hit.id for hit in with_gaps.searcher(refresh=0).search(query, k=10)]
    with_gaps.finish(force=True)
    rows = with_gaps.store.read([9000, 9001, 9002], [with_gaps.store.vector])
    expected = lifted_of(world, texts)
    np.testing.assert_allclose(matrix(rows[with_gaps.store.vector]), expected, atol=1e-5)


def test_a_row_that_loses_its_old_vector_is_no_longer_found(world, lifted):
    world.app.empty(12)
    query = world.models.new([world.texts[12]])[0]
    assert not lifted.verify().passed
    lifted.forward()
    assert lifted.verify().passed
    assert lifted.status().unusable == 1
    assert shared_of(lifted)[12][0] is None
    assert 12 not in [hit.id for hit in lifted.searcher(refresh=0).search(query, k=ROWS)]
    lifted.finish(force=True)
    rows = lifted.store.read([12], [lifted.store.vector])
    assert rows[lifted.store.vector].null_count == 1


def test_a_row_lifted_between_the_two_searches_is_found(world, lifted, monkeypatch):
    text = texts_of(1, seed=55)
    world.app.insert([9000], text, [0], world.models.old(text))
    searcher, store = lifted.searcher(refresh=0), lifted.store
    real, calls = store.search, []

    def search(*arguments, **named):
        found = real(*arguments, **named)
        if not calls:
            lifted.forward()
        calls.append(named["column"])
        return found

    monkeypatch.setattr(store, "search", search)
    hits = searcher.search(world.models.new(text)[0], k=20)
    assert len(calls) == 2
    assert [hit.id for hit in hits].count(9000) == 1
    assert len({hit.id for hit in hits}) == 20


def test_a_look_is_taken_when_something_has_happened_and_not_at_every_search(
    world, lifted, monkeypatch
):
    late = LateRows(lifted.store, 0.0)
    looks = []
    real = lifted.store.stream

    def stream(*arguments, **named):
        looks.append(named)
        return real(*arguments, **named)

    monkeypatch.setattr(lifted.store, "stream", stream)
    assert not late.any()
    for _ in range(5):
        assert not late.any()
    if lifted.store.activity() is not None:
        assert len(looks) == 1
    text = texts_of(1, seed=55)
    world.app.insert([9000], text, [0], world.models.old(text))
    # Where a look takes long, it is taken beside the searches.
    for _ in range(1000):
        if late.any():
            break
        time.sleep(0.01)
    assert late.any()


@pytest.mark.parametrize("seen", ["a look before", "rows that were all old"])
def test_a_look_that_takes_long_holds_up_no_search(lifted, monkeypatch, seen):
    late = LateRows(lifted.store, 0.01)
    if seen == "a look before":
        assert not late.any()
    else:
        late.not_yet()
    time.sleep(0.02)
    real, go_on = lifted.store.stream, threading.Event()

    def stream(*arguments, **named):
        go_on.wait(30)
        return real(*arguments, **named)

    monkeypatch.setattr(lifted.store, "stream", stream)
    monkeypatch.setattr(lifted.store, "activity", lambda: None)
    assert not late.any()
    under_way = late._busy.locked()
    go_on.set()
    assert under_way
    # Before the store is closed under its hands.
    with late._busy:
        pass
