"""Whole columns, fragment by fragment: every row as it was, and the application always first."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.errors import StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import Column, WholeColumns, open_store
from crossfade.stores.rows import matrix

ROWS, DIM, PIECE = 300, 8, 100
SHARED, STATE = "crossfade_vector", "crossfade_state"


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def table_of(ids, vectors) -> pa.Table:
    return pa.table({"id": ids, "body": [f"b{i}" for i in ids], "vector": to_arrow(vectors)})


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def path(request, tmp_path, vectors):
    """A table of three fragments, one of which has lost some rows."""
    place = tmp_path / "items.lance"
    lance.write_dataset(
        table_of(range(ROWS), vectors),
        place,
        max_rows_per_file=PIECE,
        data_storage_version=request.param,
    )
    lance.dataset(place).delete("id >= 110 AND id < 115")
    return place


@pytest.fixture
def store(path):
    opened = open_store(path)
    opened.add_columns([Column(SHARED, "vector", DIM), Column(STATE, "text")])
    return opened


def negated(rows: pa.RecordBatch, keep=lambda key: True) -> pa.RecordBatch:
    """The work of these tests: minus the old vector, for the rows to keep."""
    rows = rows.filter(pa.array([keep(key) for key in rows["id"].to_pylist()]))
    made = {"id": rows["id"], SHARED: to_arrow(-matrix(rows["vector"]))}
    return pa.RecordBatch.from_pydict(made | {STATE: pa.repeat(pa.scalar("done"), len(rows))})


def filled(path) -> dict[int, np.ndarray]:
    rows = lance.dataset(path).to_table(filter=f"{STATE} = 'done'")
    return dict(zip(rows["id"].to_pylist(), matrix(rows[SHARED]), strict=True))


def write(store, work=negated, size=32) -> int:
    return sum(store.write_all(["vector"], work, size=size))


def test_every_row_is_written_and_nothing_else_is_touched(store, path, vectors):
    assert isinstance(store, WholeColumns)
    before = lance.dataset(path).to_table(columns=["id", "body", "vector"])
    assert write(store) == ROWS - 5
    found = filled(path)
    assert sorted(found) == [i for i in range(ROWS) if not 110 <= i < 115]
    for key, vector in found.items():
        np.testing.assert_array_equal(vector, -vectors[key])
    assert lance.dataset(path).to_table(columns=["id", "body", "vector"]) == before
    assert [f.num_deletions for f in lance.dataset(path).get_fragments()] == [0, 5, 0]
    lance.dataset(path).validate()


def test_rows_that_nothing_is_made_of_stay_empty(store, path):
    assert write(store, lambda rows: negated(rows, lambda key: key % 3 == 0)) == len(
        [i for i in range(0, ROWS, 3) if not 110 <= i < 115]
    )
    assert all(key % 3 == 0 for key in filled(path))
    assert store.tally(STATE)[None] == ROWS - 5 - len(filled(path))
    rows = lance.dataset(path).to_table(filter=f"{STATE} IS NULL")
    assert rows[SHARED].null_count == len(rows)


def test_nothing_at_all_may_be_made(store, path):
    assert write(store, lambda rows: None) == 0
    assert filled(path) == {}


def test_what_is_written_is_not_written_again(store):
    write(store)

    def never(rows):
        raise AssertionError("shown again")

    assert write(store, never) == 0


def test_stopped_in_the_middle_it_goes_on_with_the_next_fragment(store, path):
    steps = store.write_all(["vector"], negated, size=32)
    done = 0
    while not done:
        done += next(steps)
    next(steps)
    steps.close()
    assert done == len(filled(path)) == PIECE
    files = {f.path for part in lance.dataset(path).get_fragments() for f in part.data_files()}
    assert {file.name for file in (path / "data").iterdir()} == files
    assert write(store) == ROWS - 5 - PIECE
    assert len(filled(path)) == ROWS - 5


@pytest.mark.parametrize("what", ["change", "delete", "compact", "append"])
def test_the_application_goes_first(store, path, vectors, what):
    disturbed = []

    def work(rows):
        if not disturbed and 150 in rows["id"].to_pylist():
            disturbed.append(True)
            other = lance.dataset(path)
            if what == "change":
                other.update({"body": "'changed'"}, where="id = 120")
            elif what == "delete":
                other.delete("id = 120")
            elif what == "compact":
                other.optimize.compact_files()
            else:
                lance.write_dataset(table_of([999], vectors[:1]), path, mode="append")
        return negated(rows)

    write(store, work)
    now = lance.dataset(path).to_table()
    bodies = dict(zip(now["id"].to_pylist(), now["body"].to_pylist(), strict=True))
    assert disturbed
    assert len(now) == ROWS - 5 + {"delete": -1, "append": 1}.get(what, 0)
    assert (120 in bodies) == (what != "delete")
    assert bodies.get(120) == {"change": "changed", "delete": None}.get(what, "b120")
    for key, vector in filled(path).items():
        np.testing.assert_array_equal(vector, -vectors[key])
    # What was moved meanwhile, or came, is left for batches of rows.
    missing = store.tally(STATE).get(None, 0)
    assert missing == {"change": 1, "append": 1}.get(what, missing)


def test_the_applications_index_still_knows_every_row(store, path, vectors):
    lance.dataset(path).create_index("vector", "IVF_FLAT", metric="cosine", num_partitions=1)
    write(store)
    dataset = lance.dataset(path)
    name = dataset.describe_indices()[0].name
    assert dataset.stats.index_stats(name)["num_unindexed_rows"] == 0
    found = dataset.to_table(nearest={"column": "vector", "q": vectors[7], "k": 1})
    assert found["id"].to_pylist() == [7]


def test_a_failure_of_the_work_leaves_nothing_behind(store, path):
    before = {file.name for file in (path / "data").iterdir()}

    def work(rows):
        raise OSError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        write(store, work)
    assert {file.name for file in (path / "data").iterdir()} == before
    assert filled(path) == {}
