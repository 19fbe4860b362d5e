"""A folder of Parquet files whose writer is killed at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.stores.apps import ParquetApp, idle
from tests.stores.parquet.conftest import ADDED, DIM, NAMES, ROWS, SHARED, deltas, rows, shared

from crossfade.stores import open_store
from crossfade.stores.parquet.delta import FAN
from crossfade.stores.rows import matrix


def killed_after(script: str, place: str, seconds: float) -> None:
    """Runs a script that does not end, and kills it some time after it said that it began."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, place], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert process.returncode == -signal.SIGKILL


WRITER = """
import itertools, sys
from tests.stores.parquet.conftest import ADDED, ROWS, rows
from crossfade.stores import open_store
store = open_store(sys.argv[1])
store.add_columns(ADDED)
seed = max((int(s) for s in store.tally("crossfade_state") if s), default=0)
print("begun", flush=True)
for seed in itertools.count(seed + 1):
    first = seed * 20 % ROWS
    store.write(rows(range(first, first + 20), seed))
"""


def test_kills_while_writing_and_merging_leave_whole_batches(app):
    merged = 0
    for seconds in np.random.default_rng(5).uniform(0, 0.4, size=8):
        killed_after(WRITER, app.address, seconds)
        store = open_store(app.address)
        with store.lock():
            pass
        assert not list((Path(app.address) / "_crossfade").glob(".*.tmp-*"))
        back = store.read(range(ROWS), NAMES)
        assert len(back) == ROWS
        states = back["crossfade_state"].to_pylist()
        # A batch is twenty rows, and every row holds what its last writing gave it.
        for first in range(0, ROWS, 20):
            assert len(set(states[first : first + 20])) == 1
        written = [i for i in range(ROWS) if states[i] is not None]
        expected = [shared([i], int(states[i]))[0] for i in written]
        found = matrix(back["crossfade_vector"])[written]
        np.testing.assert_array_equal(found, np.array(expected).reshape(-1, SHARED))
        merged = max(merged, max((int(p.stem.split("-")[1]) for p in deltas(app)), default=0))
    assert merged > FAN
    assert sorted(app.old()) == list(range(ROWS))


PROMOTER = """
import os, signal, sys
from pathlib import Path
from crossfade.stores import open_store
store = open_store(sys.argv[1])
left = int(sys.argv[2])

def dying(act):
    def acting(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **named)
    return acting

# Everything that makes a step durable or visible.
os.fsync, Path.replace, Path.unlink = map(dying, (os.fsync, Path.replace, Path.unlink))
store.promote("crossfade_vector", ["crossfade_state"], columns=(), work=lambda rows: None)
"""


def test_a_kill_at_any_step_of_promoting_can_be_followed_by_another_try(tmp_path):
    kills = 0
    for steps in range(0, 1000, 3):
        app = ParquetApp(tmp_path / str(steps))
        old = np.ones((40, DIM), np.float32)
        app.create(list(range(40)), [f"text {i}" for i in range(40)], [0] * 40, old)
        paths = sorted(Path(app.address).glob("*.parquet"))
        groups = [pq.read_metadata(path).num_row_groups for path in paths]
        store = open_store(app.address)
        store.add_columns(ADDED)
        store.write(rows(range(40), 3))
        ran = subprocess.run([sys.executable, "-c", PROMOTER, app.address, str(steps)])
        again = open_store(app.address)
        dims = {pq.read_schema(path).field("vector").type.list_size for path in paths}
        told = {(DIM,): "old", (SHARED,): "new"}.get(tuple(dims), "neither")
        assert again.own_vectors("crossfade_vector") == told
        if steps:
            # Between the two tries the application adds a file that sorts before all others.
            pq.write_table(
                pa.table({"id": [900], "vector": [[1.0] * SHARED], "body": ["late"], "kind": [0]}),
                Path(app.address) / "a.parquet",
            )
        assert (
            again.promote("crossfade_vector", ["crossfade_state"], columns=(), work=idle)
            == "vector"
        )
        assert (again.describe().added, again.describe().dim) == ((), SHARED)
        table = pa.concat_tables(pq.read_table(path) for path in paths)
        assert table.column_names == ["id", "body", "kind", "vector"]
        assert table["id"].to_pylist() == list(range(40))
        assert table["body"].to_pylist() == [f"text {i}" for i in range(40)]
        np.testing.assert_array_equal(matrix(table["vector"]), shared(range(40), 3))
        assert [pq.read_metadata(path).num_row_groups for path in paths] == groups
        if steps:
            assert again.read([900], ["vector"])["vector"].to_pylist() == [[1.0] * SHARED]
        assert deltas(app) == []
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL
        kills += 1
    assert kills >= 5
