"""Which Parquet files of a folder make a store: strangers, doubles, damage, differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stores.parquet.conftest import ADDED, DIM, NAMES, ROWS, rows

from crossfade.errors import BadInput
from crossfade.stores import open_store


def test_the_same_id_in_two_files_is_an_error_that_names_both(app):
    table = pq.read_table(Path(app.address) / "part-0.parquet")
    pq.write_table(table.slice(0, 1), Path(app.address) / "twice.parquet")
    with pytest.raises(BadInput, match=r"part-0.parquet: id 0: twice.parquet has it too"):
        open_store(app.address)
    (Path(app.address) / "twice.parquet").unlink()
    pq.write_table(pa.concat_tables([table, table]), Path(app.address) / "part-0.parquet")
    with pytest.raises(BadInput, match="the file has it twice"):
        open_store(app.address)


def test_files_of_others_are_left_alone(app):
    (Path(app.address) / "README.md").write_text("ours")
    (Path(app.address) / "_metadata").write_bytes(b"PAR1")
    (Path(app.address) / ".part-9.parquet").write_bytes(b"half written")
    (Path(app.address) / "_crossfade").mkdir()
    (Path(app.address) / "_crossfade" / "notes.parquet").write_bytes(b"not a delta")
    store = open_store(app.address)
    store.add_columns(ADDED)
    assert store.write(rows(range(ROWS), 1)) == ROWS
    store.drop_columns(NAMES)
    assert (Path(app.address) / "_crossfade" / "notes.parquet").exists()


def test_a_file_that_is_no_parquet_file_is_named(app):
    (Path(app.address) / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(BadInput, match=r"broken.parquet: is not a parquet file, or is damaged"):
        open_store(app.address)


def test_files_that_do_not_fit_are_named(app):
    path = Path(app.address) / "q.parquet"
    pq.write_table(pa.table({"key": [1]}), path)
    with pytest.raises(BadInput, match=r"q.parquet: has no column 'id'"):
        open_store(app.address)
    pq.write_table(pa.table({"id": ["a"]}), path)
    with pytest.raises(BadInput, match=r"ids are int64 there and string in q.parquet"):
        open_store(app.address)
    pq.write_table(pa.table({"id": [900]}), path)
    with pytest.raises(BadInput, match=r"q.parquet: has no column 'vector'"):
        open_store(app.address)
    pq.write_table(pa.table({"id": [900], "vector": [[1.0] * (DIM + 1)]}), path)
    with pytest.raises(BadInput, match="dimensions"):
        list(open_store(app.address).stream(["vector"]))
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "vector": [[1.0] * DIM]}), path)
    with pytest.raises(BadInput, match="rows without 'id'"):
        open_store(app.address)


def test_an_empty_folder_is_no_store(tmp_path):
    with pytest.raises(BadInput, match="holds no Parquet files"):
        open_store(tmp_path)


def test_columns_that_only_some_files_have_are_null_in_the_others(app):
    path = Path(app.address) / "part-0.parquet"
    pq.write_table(pq.read_table(path).append_column("lang", pa.array(["en"] * 25)), path)
    store = open_store(app.address)
    assert "lang" in store.describe().columns
    found = [v for b in store.stream(["lang"], size=7) for v in b["lang"].to_pylist()]
    assert found == ["en"] * 25 + [None] * (ROWS - 25)
    hits = store.search(np.ones(DIM, np.float32), column="vector", k=ROWS, where={"lang": "en"})
    assert sorted(hit.id for hit in hits) == list(range(25))
