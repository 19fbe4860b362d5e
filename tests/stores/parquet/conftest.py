"""An application with 120 rows in five Parquet files, and batches that tell who wrote them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.stores.apps import ParquetApp

from crossfade.files.arrow import to_arrow
from crossfade.stores import Column

ROWS, DIM, SHARED = 120, 4, 6
ADDED = (Column("crossfade_vector", "vector", SHARED), Column("crossfade_state", "text"))
NAMES = [column.name for column in ADDED]


@pytest.fixture
def app(tmp_path):
    """120 rows in five files."""
    app = ParquetApp(tmp_path)
    old = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], [0] * ROWS, old)
    return app


def shared(ids, seed) -> np.ndarray:
    """A vector that says which row and which writing it is of."""
    out = np.zeros((len(ids), SHARED), np.float32)
    out[:, 0], out[:, 1] = ids, seed
    return out


def rows(ids, seed, **more) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids, pa.int64()),
            "crossfade_vector": to_arrow(shared(ids, seed)),
            "crossfade_state": pa.array([str(seed)] * len(ids)),
            **more,
        }
    )


def deltas(app) -> list[Path]:
    return sorted((Path(app.address) / "_crossfade").glob("*.parquet"))
