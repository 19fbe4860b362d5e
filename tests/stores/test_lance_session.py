"""What a LanceDB store keeps from one look at its table to the next, and what it never does."""

from __future__ import annotations

import os
import re
import shutil
import time

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import open_store

ROWS, DIM = 600, 8
QUERY = np.eye(DIM, dtype=np.float32)[0]


def write(path, ids, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(len(ids), DIM)).astype(np.float32)
    table = pa.table({"id": pa.array(ids), "vector": to_arrow(vectors)})
    lance.write_dataset(table, path)
    lance.dataset(path).create_index("vector", "IVF_FLAT", metric="cosine", num_partitions=4)
    return vectors


def nearest(ids, vectors: np.ndarray) -> list[int]:
    scores = vectors @ QUERY / np.linalg.norm(vectors, axis=1)
    return [ids[i] for i in np.argsort(-scores)[:5]]


def found(store) -> list[int]:
    return [hit.id for hit in store.search(QUERY, column="vector", k=5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.lance"


def test_an_index_is_read_for_the_first_search_and_not_again(path):
    write(path, range(ROWS))
    store = open_store(path)
    search = {"column": "vector", "q": QUERY, "k": 5, "metric": "cosine"}
    loaded = [
        sum(map(int, re.findall(r"(?:indices|parts)_loaded=(\d+)", plan)))
        for plan in (store._now().scanner(nearest=search).analyze_plan() for _ in range(3))
    ]
    assert loaded[0] > 0
    assert loaded[1:] == [0, 0]


def test_another_table_in_its_place_is_another_table(path, tmp_path):
    write(path, range(ROWS))
    store = open_store(path)
    assert all(key < ROWS for key in found(store))
    ids = list(range(5000, 5000 + ROWS))
    vectors = write(tmp_path / "other.lance", ids, seed=1)
    version = store.version()
    shutil.rmtree(path)
    shutil.move(tmp_path / "other.lance", path)
    assert store.version() == version
    assert found(store) == nearest(ids, vectors)


def test_rows_that_others_write_are_seen_by_the_next_search(path):
    vectors = write(path, range(ROWS))
    store = open_store(path)
    assert found(store) == nearest(range(ROWS), vectors)
    more = pa.table({"id": pa.array([ROWS]), "vector": to_arrow(QUERY[None])})
    lance.write_dataset(more, path, mode="append")
    assert found(store)[0] == ROWS
    lance.dataset(path).delete(f"id = {ROWS}")
    assert found(store) == nearest(range(ROWS), vectors)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_has_a_session_of_its_own(path):
    vectors = write(path, range(ROWS))
    store = open_store(path)
    expected = found(store)
    assert expected == nearest(range(ROWS), vectors)
    child = os.fork()
    if not child:
        os._exit(0 if found(store) == expected else 1)
    end = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
