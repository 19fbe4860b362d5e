"""Batches into a Lance table: in place where that is cheap, and never over what others wrote."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, open_store
from crossfade.stores.rows import matrix

ROWS, DIM, PIECE = 320, 8, 160
SHARED = "crossfade_vector"


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture(params=["2.0", "2.2"])
def path(request, tmp_path, vectors):
    """Two fragments."""
    table = pa.table({"id": range(ROWS), "body": ["b"] * ROWS, "vector": to_arrow(vectors)})
    place = tmp_path / "items.lance"
    lance.write_dataset(table, place, max_rows_per_file=PIECE, data_storage_version=request.param)
    return place


@pytest.fixture
def store(path):
    opened = open_store(path)
    opened.add_columns([Column(SHARED, "vector", DIM)])
    return opened


def write(store, ids, factor, between=lambda: None) -> int:
    rows = store.read(ids, ["vector"])
    between()
    made = {"id": rows["id"], SHARED: to_arrow(np.float32(factor) * matrix(rows["vector"]))}
    return store.write(pa.RecordBatch.from_pydict(made | {TOKEN: rows[TOKEN]}))


def shared(path) -> dict[int, np.ndarray]:
    rows = lance.dataset(path).to_table(filter=f"{SHARED} IS NOT NULL")
    return dict(zip(rows["id"].to_pylist(), matrix(rows[SHARED]), strict=True))


def deleted(path) -> int:
    return sum(part.num_deletions for part in lance.dataset(path).get_fragments())


@pytest.mark.parametrize(("count", "moved"), [(20, False), (19, True)])
def test_a_batch_that_is_no_small_part_leaves_rows_where_they_are(
    store, path, vectors, count, moved
):
    first, second = list(range(0, ROWS, ROWS // count))[:count], list(range(5, 5 + count))
    assert write(store, first, 2.0) == count
    assert write(store, second, 3.0) == count
    assert (deleted(path) > 0) == moved
    expected = {key: 2.0 * vectors[key] for key in first}
    expected |= {key: 3.0 * vectors[key] for key in second}
    found = shared(path)
    assert sorted(found) == sorted(expected)
    for key, vector in expected.items():
        np.testing.assert_allclose(found[key], vector, rtol=1e-6)
    everything = lance.dataset(path).to_table().sort_by("id")
    assert everything["body"].to_pylist() == ["b"] * ROWS
    np.testing.assert_array_equal(matrix(everything["vector"]), vectors)


def test_a_change_elsewhere_in_the_fragment_does_not_keep_a_batch_out(store, path, vectors):
    ids = list(range(40))

    def other():
        lance.dataset(path).update({"body": "'changed'"}, where="id = 100")

    assert write(store, ids, 2.0, other) == 40
    assert sorted(shared(path)) == ids
    rows = lance.dataset(path).to_table(filter="id = 100")
    assert rows["body"].to_pylist() == ["changed"]
    files = {f.path for part in lance.dataset(path).get_fragments() for f in part.data_files()}
    older = {
        file.path
        for version in lance.dataset(path).versions()
        for part in lance.dataset(path, version=version["version"]).get_fragments()
        for file in part.data_files()
    }
    assert {file.name for file in (path / "data").iterdir()} == files | older


def test_a_change_of_one_of_its_rows_keeps_a_batch_out(store, path):
    def other():
        lance.dataset(path).update({"body": "'changed'"}, where="id = 3")

    assert write(store, list(range(40)), 2.0, other) == 0
    assert shared(path) == {}


def test_where_an_index_covers_the_column_rows_are_moved(store, path, vectors):
    assert write(store, list(range(ROWS)), 2.0) == ROWS
    lance.dataset(path).create_index(SHARED, "IVF_FLAT", metric="cosine", num_partitions=1)
    assert write(store, list(range(40)), -1.0) == 40
    assert deleted(path) == 40
    best = store.search(-vectors[7], column=SHARED, k=1)[0]
    assert (best.id, best.score) == (7, pytest.approx(1.0, abs=1e-5))


def test_rows_that_were_moved_get_into_the_index_again(store, path, monkeypatch):
    monkeypatch.setattr("crossfade.stores.lance.fragments.MANY", 80)
    write(store, list(range(ROWS)), 2.0)
    lance.dataset(path).create_index(SHARED, "IVF_FLAT", metric="cosine", num_partitions=1)
    unindexed = []
    for first in range(0, 120, 15):
        write(store, list(range(first, first + 15)), -1.0)
        dataset = lance.dataset(path)
        (name,) = (index.name for index in dataset.describe_indices())
        unindexed.append(dataset.stats.index_stats(name)["num_unindexed_rows"])
    assert max(unindexed) < 60
    assert 0 in unindexed[1:]
