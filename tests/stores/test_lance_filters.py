"""Filtered searches by an index of LanceDB, against all vectors gone through by numpy."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import open_store

ROWS, DIM, K = 20_000, 32, 10


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Vectors in clusters, with an index of 40 partitions; `near` passes on one side of space."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(50, DIM))[rng.integers(50, size=ROWS)] + rng.normal(size=(ROWS, DIM))
    old = (old / np.linalg.norm(old, axis=1, keepdims=True)).astype(np.float32)
    along = np.argsort(np.argsort(old @ rng.normal(size=DIM)))
    columns = {
        "far": rng.permutation(ROWS) < ROWS // 500,
        "near": along < ROWS // 500,
        "many": along < ROWS // 5,
    }
    path = tmp_path_factory.mktemp("filters") / "items.lance"
    table = pa.table({"id": np.arange(ROWS), **{k: v.astype(int) for k, v in columns.items()}})
    lance.write_dataset(table.append_column("vector", to_arrow(old)), path)
    lance.dataset(path).create_index("vector", "IVF_HNSW_SQ", metric="cosine", num_partitions=40)
    return str(path), old, columns


@pytest.mark.parametrize("name", ["far", "near", "many"])
def test_filtered_searches_find_the_nearest_that_pass(place, name):
    path, old, columns = place
    store, rng = open_store(path), np.random.default_rng(1)
    queries = old[rng.choice(ROWS, 30)] + 0.1 * rng.normal(size=(30, DIM)).astype(np.float32)
    found = []
    for query in queries:
        scores = np.where(columns[name], old @ query, -np.inf)
        hits = store.search(query, column="vector", k=K, where={name: 1})
        assert len(hits) == K
        nearest = set(np.argsort(-scores)[:K].tolist())
        found.append(len(nearest & {hit.id for hit in hits}) / K)
    assert np.mean(found) >= 0.98
    store.close()
