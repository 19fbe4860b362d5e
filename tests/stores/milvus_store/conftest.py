"""A file of milvus-lite, and a collection in it."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from tests.stores.apps import MilvusApp, MilvusServerApp, create_in_milvus

from crossfade.files.arrow import to_arrow
from crossfade.stores import Column
from crossfade.stores.milvus.client import local_client, release

DIM, SHARED = 3, 4
ADDED = (Column("crossfade_vector", "vector", SHARED), Column("crossfade_state", "text"))
NAMES = tuple(column.name for column in ADDED)
VECTOR, STATE = NAMES


@pytest.fixture
def app(tmp_path):
    """An application of milvus-lite, or of a server where that is asked for."""
    kind = MilvusServerApp if os.environ.get("CROSSFADE_MILVUS") == "server" else MilvusApp
    made = kind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "items.db"


@pytest.fixture
def client(file):
    """The application's own; whoever opens the file in this process shares its server."""
    made = local_client(file)
    yield made
    release(file, made)


def vectors(rows=6, dim=DIM, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


def fill(client, name="items", rows=6, metric="COSINE", **more):
    """Rows of id, body, kind and vector."""
    made = vectors(rows)
    create_in_milvus(client, name, [0], DIM, metric, **more)
    client.insert(name, [row(i, vector) for i, vector in enumerate(made)])
    return made


def row(key, vector, body=None):
    return {"id": key, "body": body or f"text {key}", "kind": key % 3, "vector": vector}


def lifted(old):
    """What the tests take for F: another dimension, and every number of the old vector in it."""
    return np.pad(np.atleast_2d(old), ((0, 0), (0, SHARED - DIM)), constant_values=1.0)


def written(rows, state="lifted", **more):
    """What is to be written of rows with their old vectors."""
    from crossfade.stores.rows import matrix

    return pa.RecordBatch.from_pydict(
        {
            "id": rows["id"],
            VECTOR: to_arrow(lifted(matrix(rows["vector"])).astype(np.float32)),
            STATE: pa.array([state] * len(rows), pa.string()),
            **more,
        }
    )


def lift_all(store):
    """Add the columns, and write them of every row."""
    store.add_columns(ADDED)
    for rows in store.stream(["vector"]):
        store.write(written(rows))


def mend(rows):
    """For `promote`: rows whose shared vector is not that of their old one get it; those without an
    old vector lose it."""
    from crossfade.stores.rows import matrix

    old, shared = matrix(rows["vector"]), matrix(rows[VECTOR])
    there = old.any(axis=1)
    given = rows[VECTOR].is_valid().to_numpy(zero_copy_only=False)
    due = there & (~given | (np.abs(shared - lifted(old)).max(axis=1) > 1e-6))
    gone = ~there & given
    if not due.any() and not gone.any():
        return None
    made = written(rows.filter(pa.array(due)))
    taken = rows.filter(pa.array(gone))
    nothing = pa.RecordBatch.from_pydict(
        {"id": taken["id"], **{c.name: pa.nulls(len(taken), c.arrow) for c in ADDED}}
    )
    return pa.Table.from_batches([made, nothing]).combine_chunks().to_batches()[0]


def promote(store):
    return store.promote(VECTOR, [STATE], columns=["vector", *NAMES], work=mend)


def held(client, name="items"):
    """The rows of the application: id → (body, vector)."""
    found = client.query(name, filter="id >= 0", limit=16_384, consistency_level="Strong")
    return {r["id"]: (r["body"], np.array(r["vector"], np.float32)) for r in found}
