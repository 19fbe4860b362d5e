"""How a shared column takes the place of the old one in a Lance table that is written meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from crossfade.errors import StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import Column, open_store
from crossfade.stores.lance import store as module
from crossfade.stores.rows import matrix
from crossfade.stores.values import beside

ROWS, DIM, SHARED = 60, 4, 6
ADDED = (Column("crossfade_vector", "vector", SHARED), Column("crossfade_state", "text"))
COLUMNS = ["vector", "crossfade_vector", "crossfade_state"]


def old_of(keys) -> np.ndarray:
    return np.array([[key, 1, 2, 3] for key in keys], np.float32)


def lift(old: np.ndarray) -> np.ndarray:
    return np.hstack([old, old[:, :2] + 0.5]).astype(np.float32)


def table(keys) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "vector": to_arrow(old_of(keys))})


def work(rows):
    """Lift rows that have no shared vector."""
    late = rows.filter(rows["crossfade_state"].is_null())
    late = late.filter(late["vector"].is_valid())
    if not len(late):
        return None
    return pa.RecordBatch.from_pydict(
        {
            "id": late["id"],
            "crossfade_vector": to_arrow(lift(matrix(late["vector"]))),
            "crossfade_state": pa.repeat("forward", len(late)),
            "crossfade_token": late["crossfade_token"],
        }
    )


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "items.lance"
    lance.write_dataset(table(range(ROWS)), path)
    made = open_store(path)
    made.add_columns(ADDED)
    for rows in made.stream(COLUMNS):
        made.write(work(rows))
    return made


def check(store, at_least: int = ROWS) -> None:
    found = lance.dataset(store.name).to_table()
    assert found.column_names == ["id", "vector"]
    assert len(found) >= at_least
    keys = found["id"].to_pylist()
    np.testing.assert_array_equal(matrix(found["vector"]), lift(old_of(keys)))


def test_rows_that_come_through_a_handle_of_before_the_switch_are_not_lost(store):
    """Each writer opened the table before, and none of them looks at it again."""
    handles = [lance.dataset(store.name) for _ in range(8)]
    inserted = []

    def late(rows):
        # While `promote` looks at the rows: the columns have changed places already.
        swapped = "crossfade_swapped_vector" in lance.dataset(store.name).schema.names
        if handles and swapped:
            key = 1000 + len(handles)
            handles.pop().insert(table([key]))
            inserted.append(key)
        return work(rows)

    store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=late)
    assert inserted
    check(store, ROWS + len(inserted))


def test_a_writer_that_does_not_rest_loses_nothing(store):
    """Every insert that Lance has taken has its vector at the end, or its row is not there."""
    ended, taken = threading.Event(), []

    def write() -> None:
        key = 5000
        while not ended.is_set():
            try:
                lance.write_dataset(table([key]), store.name, mode="append")
            except OSError:
                # The column has another dimension now: the switch has happened.
                return
            taken.append(key)
            key += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)
    finally:
        ended.set()
        writer.join()
    found = lance.dataset(store.name).to_table()["id"].to_pylist()
    assert set(taken) <= set(found)
    check(store)


def test_a_row_that_comes_between_the_last_look_and_the_drop_is_mended(store, monkeypatch):
    handle = lance.dataset(store.name)
    settle = module.LanceStore._settle

    def late(self, *arguments):
        version = settle(self, *arguments)
        handle.insert(table([7777]))
        return version

    monkeypatch.setattr(module.LanceStore, "_settle", late)
    store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)
    check(store, ROWS + 1)


@pytest.mark.parametrize("killed", [False, True])
def test_a_row_that_was_being_appended_while_the_column_went_has_its_vector(
    store, monkeypatch, killed
):
    """Lance takes an append that was begun before the swap and ends after the drop."""
    handle = lance.dataset(store.name)
    begun = write_fragments(table([7777]), handle, mode="append")
    gather = module.LanceStore._gather

    def ended(self, *arguments):
        append = lance.LanceOperation.Append(begun)
        lance.LanceDataset.commit(store.name, append, read_version=handle.version)
        assert lance.dataset(store.name).to_table()["vector"].null_count == 1
        if killed:
            raise KeyboardInterrupt
        return gather(self, *arguments)

    def promote() -> None:
        again = open_store(store.name)
        again.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)

    monkeypatch.setattr(module.LanceStore, "_gather", ended)
    if killed:
        with pytest.raises(KeyboardInterrupt):
            promote()
        monkeypatch.setattr(module.LanceStore, "_gather", gather)
    promote()
    check(store, ROWS + 1)


def test_a_kill_between_the_drop_and_the_mending_is_made_good(store, monkeypatch):
    handle = lance.dataset(store.name)
    settle, mend = module.LanceStore._settle, module.LanceStore._mend

    def late(self, *arguments):
        version = settle(self, *arguments)
        handle.insert(table([7777]))
        return version

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.LanceStore, "_settle", late)
    monkeypatch.setattr(module.LanceStore, "_mend", killed)
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)
    monkeypatch.setattr(module.LanceStore, "_mend", mend)
    again = open_store(store.name)
    again.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)
    check(store, ROWS + 1)


def nameless() -> pa.Table:
    return pa.table({"id": pa.array([None], pa.int64()), "vector": to_arrow(old_of([8888]))})


def again_17() -> pa.Table:
    """Another row by the id of one that is there."""
    return pa.table({"id": pa.array([17], pa.int64()), "vector": to_arrow(old_of([8888]))})


@pytest.mark.parametrize(
    ("row", "cause"),
    [(again_17, "several rows have the same id: 17"), (nameless, "1 rows have no")],
)
def test_rows_that_cannot_be_told_apart_stop_the_switch_while_it_can_be_undone(store, row, cause):
    handle, came = lance.dataset(store.name), []

    def late(rows):
        if not came:
            came.append(handle.insert(row()))
        return work(rows)

    with pytest.raises(StoreError, match=cause):
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=late)
    store.withdraw("crossfade_vector")
    found = lance.dataset(store.name).to_table(columns=["id", "vector"]).to_pydict()
    left = {str(np.array(vector)): key for key, vector in zip(*found.values(), strict=True)}
    # Each row has the old vector that it had, the one that came too.
    assert left.pop(str(old_of([8888])[0].astype(float))) == row()["id"][0].as_py()
    assert left == {str(old_of([key])[0].astype(float)): key for key in range(ROWS)}


@pytest.mark.parametrize(("row", "named"), [(again_17, "own: 17"), (nameless, "own: none")])
def test_such_a_row_that_comes_in_the_moment_of_the_switch_is_named(store, monkeypatch, row, named):
    """It is too late to go back; but no other row gets its vector, and it is not passed over."""
    handle = lance.dataset(store.name)
    settle = module.LanceStore._settle

    def late(self, *arguments):
        version = settle(self, *arguments)
        handle.insert(row())
        return version

    def promote() -> None:
        again = open_store(store.name)
        again.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)

    monkeypatch.setattr(module.LanceStore, "_settle", late)
    with pytest.raises(StoreError, match=named):
        promote()
    monkeypatch.setattr(module.LanceStore, "_settle", settle)
    found = lance.dataset(store.name).to_table()
    whole = found.filter(found["vector"].is_valid()).sort_by("id")
    assert whole["id"].to_pylist() == list(range(ROWS))
    np.testing.assert_array_equal(matrix(whole["vector"]), lift(old_of(range(ROWS))))
    assert len(found) == ROWS + 1
    # It is said again, until somebody has seen to it.
    with pytest.raises(StoreError, match=named):
        promote()
    lance.dataset(store.name).delete("vector IS NULL")
    promote()
    check(store)


def test_while_the_columns_have_changed_places_the_store_looks_as_before(store):
    before = store.describe()
    query = lift(old_of([30]))[0]
    expected = [hit.id for hit in store.search(query, column="crossfade_vector", k=5)]

    def look(rows):
        assert "crossfade_swapped_vector" in lance.dataset(store.name).schema.names
        other = open_store(store.name)
        now = other.describe()
        assert (now.dim, now.added, now.columns) == (before.dim, before.added, before.columns)
        hits = other.search(query, column="crossfade_vector", k=5)
        assert [hit.id for hit in hits] == expected
        np.testing.assert_array_equal(matrix(rows["vector"]), old_of(range(ROWS)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=look)
    store.withdraw("crossfade_vector")
    store.withdraw("crossfade_vector")
    assert store.describe() == before
    store.drop_columns(["crossfade_vector", "crossfade_state"])
    found = lance.dataset(store.name).to_table().sort_by("id")
    assert found.column_names == ["id", "vector"]
    np.testing.assert_array_equal(matrix(found["vector"]), old_of(range(ROWS)))


def test_a_switch_is_not_undone_where_rows_would_lose_their_only_vector(store):
    def cut(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=cut)
    new = pa.table({"id": [900], "vector": to_arrow(np.ones((1, SHARED), np.float32))})
    lance.write_dataset(new, store.name, mode="append")
    with pytest.raises(StoreError, match="1 rows were written with new vectors"):
        store.withdraw("crossfade_vector")
    store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=work)
    kept = open_store(store.name).read([900], ["vector"])
    assert matrix(kept["vector"]).tolist() == [[1.0] * SHARED]


def test_a_row_that_is_emptied_after_the_switch_is_empty_when_it_is_undone(store):
    def cut(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", ["crossfade_state"], columns=COLUMNS, work=cut)
    lance.dataset(store.name).update({"vector": "NULL"}, where="id = 3")
    store.withdraw("crossfade_vector")
    found = lance.dataset(store.name).to_table().sort_by("id")
    assert found.filter(found["vector"].is_null())["id"].to_pylist() == [3]
    kept = [i for i in range(ROWS) if i != 3]
    np.testing.assert_array_equal(matrix(found["vector"].drop_null()), old_of(kept))


def test_tables_of_like_names_have_journals_and_locks_of_their_own(tmp_path):
    for name in ("emb.v1", "emb.v2", "emb.v1.lance"):
        lance.write_dataset(table([1, 2]), tmp_path / name)
    first, second, third = (open_store(tmp_path / n) for n in ("emb.v1", "emb.v2", "emb.v1.lance"))
    first.put("migration", "one")
    assert (second.get("migration"), third.get("migration")) == (None, None)
    with first.lock(), second.lock(), third.lock():
        assert first.get("migration") == "one"


def test_a_link_to_a_table_leads_to_its_journal_and_its_lock(store, tmp_path):
    store.put("migration", "one")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "current.lance"
    link.symlink_to(store.name)
    other = open_store(link)
    assert other.get("migration") == "one"
    assert beside(link, "json") == beside(Path(store.name), "json")
    with store.lock(), pytest.raises(StoreError, match="another process"), other.lock():
        pass
