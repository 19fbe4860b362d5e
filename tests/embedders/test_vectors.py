"""Vectors that already lie in a file, looked up by id."""

from __future__ import annotations

import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from crossfade.embedders import VectorFile, embed_checked
from crossfade.embedders.idindex import IdIndex
from crossfade.errors import BadInput, EmbedderError, MissingVectors
from crossfade.files.arrow import to_arrow

ROWS, DIM = 500, 6


@pytest.fixture
def x():
    return np.random.default_rng(5).normal(size=(ROWS, DIM)).astype(np.float32)


def saved(path, ids, x):
    """The file as its own library writes it, the rows in no order of their ids."""
    table = pa.table({"id": pa.array(ids), "vector": to_arrow(x), "note": ["?"] * len(x)})
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=37)
        case ".lance":
            lance.write_dataset(table, str(path), max_rows_per_file=100)
        case ".npz":
            np.savez_compressed(path, ids=np.array(ids), vectors=x)
        case ".safetensors":
            safetensors.numpy.save_file({"ids": np.array(ids), "vectors": x}, path)
    return path


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["in memory", "on disk"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.parquet", True),
        ("a.parquet", False),
        ("a.lance", True),
        ("a.lance", False),
        ("a.npz", True),
        ("a.npz", False),
        ("a.safetensors", False),
    ],
)
def test_every_vector_is_found_by_its_id(tmp_path, x, name, text, memory):
    rng = np.random.default_rng(1)
    numbers = rng.choice(10**6, ROWS, replace=False).tolist()
    ids = [f"ä/{number}" for number in numbers] if text else numbers
    file = VectorFile(saved(tmp_path / name, ids, x), memory_bytes=memory, scratch=tmp_path)
    assert not file.needs_source
    assert (len(file), file.dimension) == (ROWS, DIM)
    for size in (1, 64, ROWS):
        rows = rng.choice(ROWS, size, replace=False)
        asked = [ids[row] for row in rows]
        assert np.array_equal(embed_checked(file, asked, None, DIM), x[rows])
    assert file.has([ids[3], "none" if text else -1, ids[4]]).tolist() == [True, False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_an_id_may_be_asked_for_twice(tmp_path, x):
    file = VectorFile(saved(tmp_path / "a.npz", range(ROWS), x), memory_bytes=0)
    assert np.array_equal(file.embed([7, 7, 3]), x[[7, 7, 3]])


def test_ids_that_are_missing_are_listed(tmp_path, x):
    file = VectorFile(saved(tmp_path / "a.parquet", range(ROWS), x))
    with pytest.raises(MissingVectors) as raised:
        embed_checked(file, [3, -1, 4, *range(ROWS, ROWS + 6), 2**70], None, DIM)
    assert raised.value.ids == (-1, *range(ROWS, ROWS + 6), 2**70)
    assert str(raised.value) == (
        f"{file.name}: has no vector for 8 ids: -1, 500, 501, 502, 503 and 3 more → "
        "embed them into the file, or leave them as they are"
    )
    assert isinstance(raised.value, EmbedderError)


def test_a_bad_vector_is_named_by_its_id(tmp_path, x):
    x[17, 2] = np.nan
    file = VectorFile(saved(tmp_path / "a.npz", [f"id-{row}" for row in range(ROWS)], x))
    assert np.array_equal(embed_checked(file, ["id-16"], None, DIM), x[16:17])
    with pytest.raises(EmbedderError, match=r"a.npz: the vector of item 'id-17' has a NaN"):
        embed_checked(file, ["id-16", "id-17"], None, DIM)


def test_ids_of_another_type_are_not_just_missing(tmp_path, x):
    numbers = VectorFile(saved(tmp_path / "a.npz", range(ROWS), x))
    with pytest.raises(EmbedderError, match="its ids are whole numbers, and '3' is asked for"):
        numbers.embed(["3"])
    texts = VectorFile(saved(tmp_path / "b.npz", [str(row) for row in range(ROWS)], x))
    with pytest.raises(EmbedderError, match="its ids are text, and 3 is asked for"):
        texts.has([3])


def test_columns_can_be_named(tmp_path, x):
    np.savez(tmp_path / "a.npz", key=np.arange(ROWS), old=x, new=2 * x)
    file = VectorFile(f"{tmp_path}/a.npz:new", ids="key")
    assert np.array_equal(file.embed([5]), 2 * x[5:6])


def test_halves_and_doubles_come_as_float32(tmp_path, x):
    for dtype in (np.float16, np.float64):
        for memory in (0, 1 << 20):
            path = saved(tmp_path / "a.npz", range(ROWS), x.astype(dtype))
            found = VectorFile(path, memory_bytes=memory).embed([1, 0])
            assert found.dtype == np.float32
            assert np.array_equal(found, x[[1, 0]].astype(dtype).astype(np.float32))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"vectors": np.ones((2, 3))}, "has no ids: no id or ids among 'vectors' → keep the ids"),
        ({"ids": np.arange(3), "vectors": np.ones((2, 3))}, "3 values in 'ids' and 2 vectors"),
        (
            {"ids": np.array(["b", "a", "b"]), "vectors": np.ones((3, 3))},
            "id 'b' stands in row 0 and in row 2 → keep one row for each id",
        ),
        ({"ids": np.array([0.5, 1.5]), "vectors": np.ones((2, 3))}, "'ids' holds double"),
        ({"ids": np.arange(2), "vectors": np.ones((2, 3), int)}, "not clear which are the vectors"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, arrays, says):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadInput, match=says):
        VectorFile(tmp_path / "a.npz")


def test_a_row_without_an_id(tmp_path):
    table = pa.table({"id": ["a", None], "vector": to_arrow(np.ones((2, 3), np.float32))})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="row 1 of 'id' is null → give every row an id"):
        VectorFile(tmp_path / "a.parquet")


def test_a_column_of_ids_that_is_not_there(tmp_path, x):
    saved(tmp_path / "a.parquet", range(ROWS), x)
    with pytest.raises(BadInput, match="has no ids: no 'key' among 'id', 'vector', 'note'"):
        VectorFile(tmp_path / "a.parquet", ids="key")


def test_a_scratch_folder_that_cannot_be_written(tmp_path, x):
    path = saved(tmp_path / "a.parquet", range(ROWS), x)
    with pytest.raises(BadInput, match="nowhere: cannot be written"):
        VectorFile(path, memory_bytes=0, scratch=tmp_path / "nowhere")


@given(st.lists(st.text(max_size=6), unique=True, min_size=1), st.lists(st.text(max_size=6)))
def test_any_texts_are_found_as_a_dict_finds_them(ids, others):
    index = IdIndex(pa.array(ids), where="x", column="id")
    rows = {one: row for row, one in enumerate(ids)}
    asked = ids + others
    assert index.rows(asked).tolist() == [rows.get(one, -1) for one in asked]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1),
    st.lists(st.integers(-(2**70), 2**70)),
)
def test_any_numbers_are_found_as_a_dict_finds_them(ids, others):
    index = IdIndex(pa.array(ids, pa.int64()), where="x", column="id")
    rows = {one: row for row, one in enumerate(ids)}
    asked = ids + others
    assert index.rows(asked).tolist() == [rows.get(one, -1) for one in asked]


SCRIPT = """
import sys
import numpy as np
from crossfade.embedders import VectorFile

def peak():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    return int(line.split()[1]) >> 10

VectorFile(sys.argv[1]).embed([1])
before = peak()
file = VectorFile(sys.argv[2], memory_bytes=1 << 20, scratch=sys.argv[3])
for start in range(0, 5000, 500):
    rows = np.random.default_rng(start).choice(len(file), 500)
    assert np.array_equal(file.embed(rows.tolist())[:, 0], rows.astype(np.float32))
print(peak() - before)
"""


def test_the_vectors_of_a_large_file_are_not_held(tmp_path, x):
    rows, dim = 200_000, 256
    large = np.ones((rows, dim), np.float32)
    large[:, 0] = np.arange(rows)
    table = pa.table({"id": np.arange(rows), "vector": to_arrow(large)})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=10_000, use_dictionary=False)
    small = saved(tmp_path / "small.parquet", range(ROWS), x)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, small, tmp_path / "large.parquet", tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < large.nbytes // 2 >> 20
