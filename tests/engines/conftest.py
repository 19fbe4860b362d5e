"""Stores in two copies, one for each engine, and a cluster of two nodes on this machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines import letters

from crossfade import Upgrade
from crossfade.files.arrow import to_arrow
from crossfade.migration import Migration
from crossfade.stores import TOKEN

ROWS = 1800
MODEL = "tests.engines.letters:new"
SLOW = "tests.engines.letters:slow"
KEPT = ("vector", "state", "upgrade", "print", "source", "sum", "revision")


@pytest.fixture(scope="session")
def upgrade_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("upgrade") / "upgrade"
    texts = letters.texts_of(1200, seed=99)
    Upgrade(solver="closed_form").fit(letters.old(texts), letters.new(texts)).save(folder)
    return folder


def table(rows: int = ROWS) -> pa.Table:
    texts = letters.texts_of(rows)
    return pa.table({"id": np.arange(rows), "body": texts, "vector": to_arrow(letters.old(texts))})


def create(kind: str, path: Path, rows: int = ROWS) -> str:
    """A LanceDB table of several fragments, or a folder of several Parquet files."""
    made = table(rows)
    if kind == "lancedb":
        import lance

        lance.write_dataset(made, path.with_suffix(".lance"), max_rows_per_file=rows // 6)
        return str(path.with_suffix(".lance"))
    path.mkdir()
    for part in range(3):
        pq.write_table(made.slice(part * (rows // 3), rows // 3), path / f"{part}.parquet")
    return str(path)


def written(migration: Migration) -> pa.Table:
    """All that a migration has written, in the order of the ids."""
    names = [f"crossfade_{name}" for name in KEPT]
    batches = [rows.drop_columns([TOKEN]) for rows in migration.store.stream(names)]
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster that all tests share: to start one takes seconds."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = _quietly(lambda: Cluster(initialize_head=True, head_node_args=node(2)))
    yield made.address
    _quietly(made.shutdown)


def node(cpus: int) -> dict:
    return {"num_cpus": cpus, "object_store_memory": 200 << 20, "include_dashboard": False}


def _quietly(act):
    with warnings.catch_warnings():
        # The processes of Ray are forked, and become other programs at once.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        return act()


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """The same rows, but for what a product rounds differently in batches of other sizes."""
    assert found.schema.equals(expected.schema, check_metadata=True)
    for name in expected.schema.names:
        one, other = found[name], expected[name]
        if pa.types.is_fixed_size_list(one.type):
            assert one.is_valid().equals(other.is_valid())
            vectors = [np.array(side.drop_null().to_pylist()) for side in (one, other)]
            np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
        elif name == "crossfade_sum":
            # Of a vector's product with another, in millionths.
            np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=0, atol=5)
        else:
            assert one.equals(other), name
