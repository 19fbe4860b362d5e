"""Added columns beside the Parquet files: written, merged, dropped, damaged, promoted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stores.apps import idle
from tests.stores.parquet.conftest import ADDED, DIM, NAMES, ROWS, SHARED, deltas, rows, shared

from crossfade.errors import BadInput
from crossfade.stores import open_store
from crossfade.stores.parquet.delta import FAN
from crossfade.stores.rows import matrix


def test_a_file_replaced_after_its_promotion_is_left_alone(app, monkeypatch):
    from crossfade.stores.parquet import store as parquet

    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 3))
    monkeypatch.setattr(
        parquet.Sidecar, "drop", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", [], columns=(), work=idle)
    monkeypatch.undo()
    app.change(7, "mine", np.full(SHARED, 9.0, np.float32))
    open_store(app.address).promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    np.testing.assert_array_equal(app.old()[7], np.full(SHARED, 9.0))
    np.testing.assert_array_equal(app.old()[8], shared([8], 3)[0])


def test_promoting_keeps_types_metadata_and_compression(app):
    path = Path(app.address) / "part-0.parquet"
    table = pq.read_table(path)
    lists = table["vector"].cast(pa.list_(pa.float64()))
    table = table.set_column(3, "vector", lists).replace_schema_metadata({"owner": "shop"})
    pq.write_table(table, path, compression="zstd", row_group_size=7)
    store = open_store(app.address)
    assert store.describe().dim == DIM
    store.add_columns(ADDED)
    store.write(rows(range(0, ROWS, 2), 3))
    store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
    with pq.ParquetFile(path) as file:
        assert file.schema_arrow.metadata[b"owner"] == b"shop"
        assert pa.types.is_list(file.schema_arrow.field("vector").type)
        assert file.metadata.row_group(0).column(1).compression == "ZSTD"
        assert file.metadata.row_group(0).num_rows == 7
        # Rows that were never written have no vector, as everywhere.
        assert file.read()["vector"].is_valid().to_pylist()[:3] == [True, False, True]


def test_the_base_files_are_not_touched_before_promoting(app):
    marks = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(app.address).glob("*.parquet")
    }
    store = open_store(app.address)
    store.add_columns(ADDED)
    for seed in range(FAN + 1):
        store.write(rows(range(ROWS), seed))
    store.drop_columns(NAMES)
    after = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(app.address).glob("*.parquet")
    }
    assert after == marks
    assert deltas(app) == []


def test_merging_keeps_what_was_written_last(app):
    store = open_store(app.address)
    store.add_columns(ADDED)
    rng = np.random.default_rng(4)
    expected: dict[int, int] = {}
    for seed in range(1, 2 * FAN + 4):
        ids = rng.choice(ROWS, 11, replace=False).tolist()
        store.write(rows(ids, seed))
        expected.update(dict.fromkeys(ids, seed))
    assert len(deltas(app)) < FAN
    # One store that saw every merge, and one that sees the result.
    for found in (store, open_store(app.address)):
        back = found.read(sorted(expected), NAMES)
        assert back["crossfade_state"].to_pylist() == [str(expected[i]) for i in sorted(expected)]
        np.testing.assert_array_equal(
            matrix(back["crossfade_vector"]),
            np.vstack([shared([i], expected[i]) for i in sorted(expected)]),
        )


def test_another_process_sees_what_is_written(app):
    writer, reader = open_store(app.address), open_store(app.address)
    writer.add_columns(ADDED)
    for seed in range(1, FAN + 3):
        writer.write(rows([5], seed))
        assert reader.read([5], NAMES)["crossfade_state"].to_pylist() == [str(seed)]


def test_a_column_that_is_dropped_and_added_again_is_empty(app):
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 1))
    store.drop_columns(["crossfade_state"])
    assert store.describe().added == ("crossfade_vector",)
    store.add_columns(ADDED)
    assert store.tally("crossfade_state") == {None: ROWS}
    assert store.read([3], NAMES)["crossfade_vector"][0].is_valid


def test_a_damaged_delta_is_named_and_can_be_deleted(app):
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 1))
    store.write(rows(range(10), 2))
    last = deltas(app)[-1]
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(BadInput, match=rf"{last.name}: .*damaged.*delete this file"):
        store.tally("crossfade_state")
    last.unlink()
    assert store.tally("crossfade_state") == {"1": ROWS}
