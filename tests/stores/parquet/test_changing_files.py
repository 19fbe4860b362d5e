"""Parquet files that come, go and are replaced while they are read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow.compute as pc
from tests.stores.parquet.conftest import ADDED, DIM, NAMES, ROWS, rows

from crossfade.stores import TOKEN, open_store


def test_streaming_and_searching_go_on_while_files_come_and_go(app):
    script = """
import sys
import numpy as np
from pathlib import Path
from tests.stores.apps import ParquetApp
app = ParquetApp.__new__(ParquetApp)
app.folder, app.address = Path(sys.argv[1]), sys.argv[1]
print("begun", flush=True)
while True:
    app.change(50, "changed", np.ones(4, np.float32))
    app.insert([1000], ["late"], [0], np.ones((1, 4)))
    (app.folder / app._find(1000)[0]).unlink()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, app.address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        store = open_store(app.address)
        for _ in range(20):
            ids = [k for b in store.stream(["vector"], size=30) for k in b["id"].to_pylist()]
            assert [k for k in ids if k != 1000] == list(range(ROWS))
            assert len(store.search(np.ones(DIM, np.float32), column="vector", k=5)) == 5
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_file_replaced_while_a_batch_is_written_is_noticed(app, monkeypatch):
    from crossfade.stores.parquet import delta as parquet_delta

    store = open_store(app.address)
    store.add_columns(ADDED)
    batch = store.read([0, 60], ["vector"])
    real, changed = parquet_delta._writer, []

    def writer(*arguments):
        if not changed:
            changed.append(True)
            app.change(0, "other", np.ones(DIM, np.float32))
        return real(*arguments)

    monkeypatch.setattr(parquet_delta, "_writer", writer)
    assert store.write(rows([0, 60], 1, **{TOKEN: batch[TOKEN]})) == 1
    found = store.read([0, 60], NAMES)["crossfade_state"]
    assert found.to_pylist() == [None, "1"]
    assert pc.count(found).as_py() == 1


def test_a_row_group_is_read_only_where_rows_of_it_are_wanted(app):
    # Ids against the order of rows: the order of the answer is that of the question.
    store = open_store(app.address)
    wanted = [119, 0, 60, 59, 61]
    batch = store.read(wanted, ["body"])
    assert batch["id"].to_pylist() == wanted
    assert batch["body"].to_pylist() == [f"text {i}" for i in wanted]
