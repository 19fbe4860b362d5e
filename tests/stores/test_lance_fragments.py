"""A table that is written in many small batches stays one that is searched quickly."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.stores.apps import idle

from crossfade.files.arrow import to_arrow
from crossfade.stores import Column, open_store
from crossfade.stores.lance.fragments import FEW, SPARE, tidy

ROWS, DIM = 400, 8


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture
def store(tmp_path, vectors):
    table = pa.table({"id": range(ROWS), "vector": to_arrow(vectors)})
    lance.write_dataset(table, tmp_path / "items.lance")
    store = open_store(tmp_path / "items.lance")
    store.add_columns([Column("crossfade_vector", "vector", DIM)])
    return store


def fragments(store) -> int:
    return len(lance.dataset(store.name).get_fragments())


def fill(store, vectors, batch=8):
    most = 0
    for first in range(0, ROWS, batch):
        rows = store.read(list(range(first, first + batch)), [])
        shared = to_arrow(-vectors[first : first + batch])
        assert store.write(rows.append_column("crossfade_vector", shared)) == batch
        most = max(most, fragments(store))
    return most


def test_small_batches_do_not_pile_up(store, vectors):
    assert 2 < fill(store, vectors) <= FEW + SPARE + 1
    store.build_index("crossfade_vector")
    assert fragments(store) <= FEW
    for i in (0, 17, 399):
        best = store.search(-vectors[i], column="crossfade_vector", k=1)[0]
        assert best.id == i
        assert best.score == pytest.approx(1.0, abs=1e-5)


def test_the_table_is_whole_once_the_shared_column_is_the_only_one(store, vectors):
    fill(store, vectors)
    assert store.promote("crossfade_vector", (), columns=(), work=idle) == "vector"
    assert fragments(store) <= FEW
    table = lance.dataset(store.name).to_table().sort_by("id")
    assert table.column_names == ["id", "vector"]
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), -vectors)


def test_a_reader_goes_on_with_the_version_it_has_open(store, vectors):
    before = lance.dataset(store.name)
    fill(store, vectors)
    store.build_index("crossfade_vector")
    assert before.to_table()["crossfade_vector"].null_count == ROWS


def test_fragments_of_some_size_are_left_alone(tmp_path):
    rows = 60_000
    table = pa.table({"id": range(rows)})
    lance.write_dataset(table, tmp_path / "large.lance", max_rows_per_file=rows // 10)
    dataset = lance.dataset(tmp_path / "large.lance")
    assert len(dataset.get_fragments()) == 10
    assert not tidy(dataset)
    assert lance.dataset(tmp_path / "large.lance").version == dataset.version


def test_who_writes_at_the_same_time_goes_first(store, vectors):
    fill(store, vectors, batch=40)
    read = lance.dataset(store.name)
    read.delete("id < 100")
    stale = read.checkout_version(read.version - 1)
    assert not tidy(stale)
    store.build_index("crossfade_vector")
    assert lance.dataset(store.name).count_rows() == ROWS - 100
