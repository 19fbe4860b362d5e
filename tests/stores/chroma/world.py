"""A collection that is migrated from 6 to 8 dimensions, by a map that the tests know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from tests.stores.chroma.app import ChromaApp

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, Store
from crossfade.stores.rows import matrix

D, N, ROWS = 6, 8, 24
VECTOR, STATE = Column("crossfade_vector", "vector", N), Column("crossfade_state", "text")
PRINT = Column("crossfade_print", "integer")
ADDED = (VECTOR, STATE, PRINT)
NAMES = [column.name for column in ADDED]
MAP = np.random.default_rng(3).normal(size=(D, N)).astype(np.float32)


def old_vectors(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, D)).astype(np.float32)


def fill(app: ChromaApp) -> np.ndarray:
    """Rows with a document, and every third with a metadata field of its own."""
    old = old_vectors()
    ids = [app.key(i) for i in range(ROWS)]
    app.create(ids, [f"text {i}" for i in range(ROWS)], [i % 3 for i in range(ROWS)], old)
    app.open().update(ids=ids[::3], metadatas=[{"lang": "é", "price": i / 2} for i in range(8)])
    return old


def prints(old: np.ndarray) -> np.ndarray:
    """A number that tells one old vector from another, rounded as Chroma rounds."""
    return np.rint(old @ np.arange(1, D + 1) * 1000).astype(np.int64)


def work(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """What `promote` is given: rows that are not lifted, or from another old vector."""
    old = matrix(rows["embedding"])
    there = rows[PRINT.name].is_valid().to_numpy(zero_copy_only=False)
    held = rows[PRINT.name].fill_null(0).to_numpy(zero_copy_only=False)
    usable = old.any(axis=1)
    due = usable & (~there | (held != prints(old)))
    if not due.any():
        return None
    some = rows.filter(pa.array(due))
    return pa.RecordBatch.from_pydict(
        {
            "id": some["id"],
            VECTOR.name: to_arrow(old[due] @ MAP),
            STATE.name: pa.array(["lifted"] * int(due.sum())),
            PRINT.name: pa.array(prints(old[due])),
            TOKEN: some[TOKEN],
        }
    )


def lift(store: Store) -> None:
    """Add the columns and lift every row."""
    store.add_columns(ADDED)
    for rows in store.stream(["embedding", *NAMES]):
        made = work(rows)
        if made is not None:
            store.write(made)


def promote(store: Store) -> str:
    return store.promote(VECTOR.name, NAMES[1:], columns=["embedding", *NAMES], work=work)


def told(app: ChromaApp) -> dict[str, Any]:
    """All that the application has of each row, but for the vector."""
    found = app.open().get(include=["documents", "metadatas"])
    return {
        key: (document, metadata)
        for key, document, metadata in zip(
            found["ids"], found["documents"], found["metadatas"], strict=True
        )
    }


def is_near(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Chroma rounds the last bits of vectors that it compares by cosine."""
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-5, atol=1e-6))
