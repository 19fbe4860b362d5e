"""A store of each kind with sixty rows, and batches to write into it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, open_store

ROWS, DIM, SHARED = 60, 6, 8
VECTOR = Column("crossfade_vector", "vector", SHARED)
STATE = Column("crossfade_state", "text")
PRINT = Column("crossfade_print", "integer")
ADDED = (VECTOR, STATE, PRINT)


@pytest.fixture
def old() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture
def store(app, old):
    app.create(list(range(0, 2 * ROWS, 2)), [f"text {i}" for i in range(ROWS)], _kinds(ROWS), old)
    opened = open_store(app.place)
    yield opened
    opened.close()


@pytest.fixture
def added(store):
    store.add_columns(ADDED)
    return store


def _kinds(rows: int) -> list[int]:
    return [i % 3 for i in range(rows)]


def written(store, ids, *, seed=1, state="forward", token=None) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    columns = {
        store.id: pa.array(ids),
        VECTOR.name: to_arrow(rng.normal(size=(len(ids), SHARED)).astype(np.float32)),
        STATE.name: pa.array([state] * len(ids)),
        PRINT.name: pa.array(range(len(ids)), pa.int64()),
    }
    if token is not None:
        columns[TOKEN] = token
    return pa.RecordBatch.from_pydict(columns)


def assert_kept(app, found: np.ndarray, given: np.ndarray) -> None:
    """What was given is kept to the last bit, or at length one where the store keeps it so."""
    if app.unit_length:
        given = given / np.linalg.norm(given, axis=-1, keepdims=True)
        np.testing.assert_allclose(found, given, rtol=1e-6, atol=1e-7)
    else:
        np.testing.assert_array_equal(found, given)


def brute_force(old: np.ndarray, query: np.ndarray, keep: np.ndarray) -> list[int]:
    cosines = old @ query / np.linalg.norm(old, axis=1) / np.linalg.norm(query)
    cosines[~keep] = -np.inf
    return [2 * int(i) for i in np.argsort(-cosines)[: keep.sum()]]
