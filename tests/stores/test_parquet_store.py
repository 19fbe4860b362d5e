"""What can go wrong with a folder of Parquet files: kills, doubles, strangers, damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.stores.apps import ParquetApp

from crossfade.errors import BadInput
from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, open_store
from crossfade.stores.parquet_delta import FAN
from crossfade.stores.rows import matrix

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
    return sorted((Path(app.place) / "_crossfade").glob("*.parquet"))


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
from tests.stores.test_parquet_store import ADDED, ROWS, rows
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
        killed_after(WRITER, app.place, seconds)
        store = open_store(app.place)
        with store.lock():
            pass
        assert not list((Path(app.place) / "_crossfade").glob(".*.tmp-*"))
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
store.promote("crossfade_vector", ["crossfade_state"])
"""


def test_a_kill_at_any_step_of_promoting_can_be_followed_by_another_try(tmp_path):
    kills = 0
    for steps in range(0, 1000, 3):
        app = ParquetApp(tmp_path / str(steps))
        old = np.ones((40, DIM), np.float32)
        app.create(list(range(40)), [f"text {i}" for i in range(40)], [0] * 40, old)
        paths = sorted(Path(app.place).glob("*.parquet"))
        groups = [pq.read_metadata(path).num_row_groups for path in paths]
        store = open_store(app.place)
        store.add_columns(ADDED)
        store.write(rows(range(40), 3))
        ran = subprocess.run([sys.executable, "-c", PROMOTER, app.place, str(steps)])
        again = open_store(app.place)
        if steps:
            # Between the two tries the application adds a file that sorts before all others.
            pq.write_table(
                pa.table({"id": [900], "vector": [[1.0] * SHARED], "body": ["late"], "kind": [0]}),
                Path(app.place) / "a.parquet",
            )
        assert again.promote("crossfade_vector", ["crossfade_state"]) == "vector"
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


def test_a_file_replaced_after_its_promotion_is_left_alone(app, monkeypatch):
    from crossfade.stores import parquet

    store = open_store(app.place)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 3))
    monkeypatch.setattr(
        parquet.Sidecar, "drop", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        store.promote("crossfade_vector", [])
    monkeypatch.undo()
    app.change(7, "mine", np.full(SHARED, 9.0, np.float32))
    open_store(app.place).promote("crossfade_vector", ["crossfade_state"])
    np.testing.assert_array_equal(app.old()[7], np.full(SHARED, 9.0))
    np.testing.assert_array_equal(app.old()[8], shared([8], 3)[0])


def test_promoting_keeps_types_metadata_and_compression(app):
    path = Path(app.place) / "part-0.parquet"
    table = pq.read_table(path)
    lists = table["vector"].cast(pa.list_(pa.float64()))
    table = table.set_column(3, "vector", lists).replace_schema_metadata({"owner": "shop"})
    pq.write_table(table, path, compression="zstd", row_group_size=7)
    store = open_store(app.place)
    assert store.describe().dim == DIM
    store.add_columns(ADDED)
    store.write(rows(range(0, ROWS, 2), 3))
    store.promote("crossfade_vector", ["crossfade_state"])
    with pq.ParquetFile(path) as file:
        assert file.schema_arrow.metadata[b"owner"] == b"shop"
        assert pa.types.is_list(file.schema_arrow.field("vector").type)
        assert file.metadata.row_group(0).column(1).compression == "ZSTD"
        assert file.metadata.row_group(0).num_rows == 7
        # Rows that were never written have no vector, as everywhere.
        assert file.read()["vector"].is_valid().to_pylist()[:3] == [True, False, True]


def test_the_base_files_are_not_touched_before_promoting(app):
    marks = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(app.place).glob("*.parquet")}
    store = open_store(app.place)
    store.add_columns(ADDED)
    for seed in range(FAN + 1):
        store.write(rows(range(ROWS), seed))
    store.drop_columns(NAMES)
    after = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(app.place).glob("*.parquet")}
    assert after == marks
    assert deltas(app) == []


def test_merging_keeps_what_was_written_last(app):
    store = open_store(app.place)
    store.add_columns(ADDED)
    rng = np.random.default_rng(4)
    expected: dict[int, int] = {}
    for seed in range(1, 2 * FAN + 4):
        ids = rng.choice(ROWS, 11, replace=False).tolist()
        store.write(rows(ids, seed))
        expected.update(dict.fromkeys(ids, seed))
    assert len(deltas(app)) < FAN
    # One store that saw every merge, and one that sees the result.
    for found in (store, open_store(app.place)):
        back = found.read(sorted(expected), NAMES)
        assert back["crossfade_state"].to_pylist() == [str(expected[i]) for i in sorted(expected)]
        np.testing.assert_array_equal(
            matrix(back["crossfade_vector"]),
            np.vstack([shared([i], expected[i]) for i in sorted(expected)]),
        )


def test_another_process_sees_what_is_written(app):
    writer, reader = open_store(app.place), open_store(app.place)
    writer.add_columns(ADDED)
    for seed in range(1, FAN + 3):
        writer.write(rows([5], seed))
        assert reader.read([5], NAMES)["crossfade_state"].to_pylist() == [str(seed)]


def test_a_column_that_is_dropped_and_added_again_is_empty(app):
    store = open_store(app.place)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 1))
    store.drop_columns(["crossfade_state"])
    assert store.describe().added == ("crossfade_vector",)
    store.add_columns(ADDED)
    assert store.tally("crossfade_state") == {None: ROWS}
    assert store.read([3], NAMES)["crossfade_vector"][0].is_valid


def test_the_same_id_in_two_files_is_an_error_that_names_both(app):
    table = pq.read_table(Path(app.place) / "part-0.parquet")
    pq.write_table(table.slice(0, 1), Path(app.place) / "twice.parquet")
    with pytest.raises(BadInput, match=r"part-0.parquet: id 0: twice.parquet has it too"):
        open_store(app.place)
    (Path(app.place) / "twice.parquet").unlink()
    pq.write_table(pa.concat_tables([table, table]), Path(app.place) / "part-0.parquet")
    with pytest.raises(BadInput, match="the file has it twice"):
        open_store(app.place)


def test_files_of_others_are_left_alone(app):
    (Path(app.place) / "README.md").write_text("ours")
    (Path(app.place) / "_metadata").write_bytes(b"PAR1")
    (Path(app.place) / ".part-9.parquet").write_bytes(b"half written")
    (Path(app.place) / "_crossfade").mkdir()
    (Path(app.place) / "_crossfade" / "notes.parquet").write_bytes(b"not a delta")
    store = open_store(app.place)
    store.add_columns(ADDED)
    assert store.write(rows(range(ROWS), 1)) == ROWS
    store.drop_columns(NAMES)
    assert (Path(app.place) / "_crossfade" / "notes.parquet").exists()


def test_a_file_that_is_no_parquet_file_is_named(app):
    (Path(app.place) / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(BadInput, match=r"broken.parquet: is not a parquet file, or is damaged"):
        open_store(app.place)


def test_files_that_do_not_fit_are_named(app):
    path = Path(app.place) / "q.parquet"
    pq.write_table(pa.table({"key": [1]}), path)
    with pytest.raises(BadInput, match=r"q.parquet: has no column 'id'"):
        open_store(app.place)
    pq.write_table(pa.table({"id": ["a"]}), path)
    with pytest.raises(BadInput, match=r"ids are int64 there and string in q.parquet"):
        open_store(app.place)
    pq.write_table(pa.table({"id": [900]}), path)
    with pytest.raises(BadInput, match=r"q.parquet: has no column 'vector'"):
        open_store(app.place)
    pq.write_table(pa.table({"id": [900], "vector": [[1.0] * (DIM + 1)]}), path)
    with pytest.raises(BadInput, match="dimensions"):
        list(open_store(app.place).stream(["vector"]))
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "vector": [[1.0] * DIM]}), path)
    with pytest.raises(BadInput, match="rows without 'id'"):
        open_store(app.place)


def test_an_empty_folder_is_no_store(tmp_path):
    with pytest.raises(BadInput, match="holds no Parquet files"):
        open_store(tmp_path)


def test_a_damaged_delta_is_named_and_can_be_deleted(app):
    store = open_store(app.place)
    store.add_columns(ADDED)
    store.write(rows(range(ROWS), 1))
    store.write(rows(range(10), 2))
    last = deltas(app)[-1]
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(BadInput, match=rf"{last.name}: .*damaged.*delete this file"):
        store.tally("crossfade_state")
    last.unlink()
    assert store.tally("crossfade_state") == {"1": ROWS}


def test_columns_that_only_some_files_have_are_null_in_the_others(app):
    path = Path(app.place) / "part-0.parquet"
    pq.write_table(pq.read_table(path).append_column("lang", pa.array(["en"] * 25)), path)
    store = open_store(app.place)
    assert "lang" in store.describe().columns
    found = [v for b in store.stream(["lang"], size=7) for v in b["lang"].to_pylist()]
    assert found == ["en"] * 25 + [None] * (ROWS - 25)
    hits = store.search(np.ones(DIM, np.float32), column="vector", k=ROWS, where={"lang": "en"})
    assert sorted(hit.id for hit in hits) == list(range(25))


def test_streaming_and_searching_go_on_while_files_come_and_go(app):
    script = """
import sys
import numpy as np
from pathlib import Path
from tests.stores.apps import ParquetApp
app = ParquetApp.__new__(ParquetApp)
app.folder, app.place = Path(sys.argv[1]), sys.argv[1]
print("begun", flush=True)
while True:
    app.change(50, "changed", np.ones(4, np.float32))
    app.insert([1000], ["late"], [0], np.ones((1, 4)))
    (app.folder / app._find(1000)[0]).unlink()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, app.place], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        store = open_store(app.place)
        for _ in range(20):
            ids = [k for b in store.stream(["vector"], size=30) for k in b["id"].to_pylist()]
            assert [k for k in ids if k != 1000] == list(range(ROWS))
            assert len(store.search(np.ones(DIM, np.float32), column="vector", k=5)) == 5
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_file_replaced_while_a_batch_is_written_is_noticed(app, monkeypatch):
    from crossfade.stores import parquet_delta

    store = open_store(app.place)
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
    store = open_store(app.place)
    wanted = [119, 0, 60, 59, 61]
    batch = store.read(wanted, ["body"])
    assert batch["id"].to_pylist() == wanted
    assert batch["body"].to_pylist() == [f"text {i}" for i in wanted]
