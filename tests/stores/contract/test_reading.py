"""The contract of stores, reading: every statement here holds for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.contract.conftest import ADDED, DIM, ROWS, STATE, assert_kept, written

from crossfade.stores import open_store
from crossfade.stores.rows import matrix


def test_describes_itself(store):
    found = store.describe()
    assert (found.rows, found.dim, found.metric, found.id, found.vector) == (
        (ROWS, DIM, "cosine", store.id, store.vector)
    )
    assert {"body", "kind"} <= set(found.columns)
    assert found.id_type == "integer"
    assert found.added == ()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streams_every_row_once_in_order_of_id(app, store, old, size):
    batches = list(store.stream([store.vector, "body"], size=size))
    ids = [key for batch in batches for key in batch[store.id].to_pylist()]
    assert ids == list(range(0, 2 * ROWS, 2))
    assert max(map(len, batches)) <= size
    assert_kept(app, np.vstack([matrix(b[store.vector]) for b in batches]), old)
    assert batches[0]["body"][0].as_py() == "text 0"


def test_streams_from_a_cursor_even_when_its_row_is_gone(app, store):
    app.delete(50)
    batches = list(store.stream([store.vector], after=50, size=5))
    assert [k for b in batches for k in b[store.id].to_pylist()] == list(range(52, 2 * ROWS, 2))


def test_streams_rows_that_come_while_it_runs_or_leaves_them_whole(app, store, old):
    stream = store.stream([store.vector], size=10)
    seen = next(stream)[store.id].to_pylist()
    app.delete(30)
    app.insert([1001], ["late"], [0], old[:1])
    seen += [key for batch in stream for key in batch[store.id].to_pylist()]
    assert 30 not in seen
    assert set(seen) - {1001} == set(range(0, 2 * ROWS, 2)) - {30}
    assert len(seen) == len(set(seen))


def test_reads_given_ids_in_their_order_without_those_that_are_gone(app, store, old):
    batch = store.read([44, 3, 0], [store.vector, "body"])
    assert batch[store.id].to_pylist() == [44, 0]
    assert_kept(app, matrix(batch[store.vector]), old[[22, 0]])
    assert len(store.read([], [store.vector])) == 0


def test_text_ids_work_too(app, old):
    *ids, gone = app.text_ids
    app.create(ids, list("uvwxyz"), [0, 1, 2, 0, 1, 2], old[:6])
    store = open_store(app.place)
    assert store.describe().id_type == "text"
    found = [k for b in store.stream([store.vector], size=2) for k in b[store.id].to_pylist()]
    assert found == sorted(ids)
    rest = [k for b in store.stream([], after=ids[0], size=2) for k in b[store.id].to_pylist()]
    assert rest == sorted(ids)[sorted(ids).index(ids[0]) + 1 :]
    store.add_columns(ADDED)
    assert store.write(written(store, [ids[2], ids[4], gone])) == 2
    assert store.tally(STATE.name) == {None: 4, "forward": 2}
    back = store.read([ids[2], ids[1]], [STATE.name])
    assert back[STATE.name].to_pylist() == ["forward", None]
    hits = store.search(old[2], column=store.vector, k=1, where={"body": "w"})
    assert [h.id for h in hits] == [ids[2]]
    store.close()
