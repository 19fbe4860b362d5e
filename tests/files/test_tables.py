"""parquet and lance: other columns, list types, nulls, and the missing extra."""

from __future__ import annotations

import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossfade.errors import BadInput, BadRow
from crossfade.files import Layout, left_out, open_source, read_values, write_batches


@pytest.fixture(params=["parquet", "lance"])
def save(request, tmp_path):
    def write(table):
        path = tmp_path / f"x.{request.param}"
        if request.param == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            lance.write_dataset(table, str(path), max_rows_per_file=3)
        return path

    return write


def load(path):
    if path.suffix == ".lance":
        return lance.dataset(str(path)).to_table()
    return pq.read_table(path)


VECTORS = [[float(i), float(i * i)] for i in range(8)]


@pytest.mark.parametrize("target", ["y.parquet", "y.lance"])
def test_other_columns_are_kept_as_they_are(save, tmp_path, target):
    table = pa.table(
        {
            "id": pa.array([f"doc-{i}" for i in range(8)]),
            "embedding": pa.array(VECTORS, pa.list_(pa.float32(), 2)),
            "price": pa.array([1.5, None, 3.0, 4.0, None, 6.0, 7.0, 8.0]),
            "tags": pa.array([["a"], [], None, ["b", "c"], [], [], [], []]),
        }
    ).replace_schema_metadata({"owner": "search"})
    source = open_source(save(table))
    assert source.others == ("id", "price", "tags")
    layout = Layout(source.schema, source.column, source.rows)
    write_batches(tmp_path / target, source.batches(3), layout)
    assert load(tmp_path / target).to_pylist() == table.to_pylist()
    assert open_source(tmp_path / target).metadata["owner"] == "search"
    assert left_out("z.npy", layout) == ("id", "price", "tags")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64())])
def test_lists_of_one_length_are_vectors(save, kind):
    source = open_source(save(pa.table({"v": pa.array(VECTORS, kind), "n": list(range(8))})))
    assert source.dim == 2
    assert pa.types.is_fixed_size_list(source.schema.field("v").type)
    np.testing.assert_array_equal(np.concatenate(list(source.vectors(3))), VECTORS)


def test_a_list_of_another_length_is_named_by_its_row(save):
    ragged = [*VECTORS[:5], [1.0, 2.0, 3.0], *VECTORS[6:]]
    path = save(pa.table({"v": pa.array(ragged, pa.list_(pa.float32()))}))
    with pytest.raises(BadRow, match=r"row 5 of 'v' has 3 values where row 0 has 2 → "):
        list(open_source(path).vectors(2))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_a_null_vector_is_named_by_its_row(save, kind):
    holed = [*VECTORS[:6], None, VECTORS[7]]
    path = save(pa.table({"v": pa.array(holed, kind)}))
    with pytest.raises(BadRow, match=r"row 6 of 'v' is null → ") as caught:
        list(open_source(path).vectors(2))
    assert caught.value.row == 6


def test_a_null_number_is_named_by_its_row(tmp_path):
    holed = [*VECTORS[:6], [1.0, None], VECTORS[7]]
    pq.write_table(pa.table({"v": pa.array(holed, pa.list_(pa.float32()))}), tmp_path / "x.parquet")
    with pytest.raises(BadRow, match=r"row 6 of 'v' has a null value → "):
        list(open_source(tmp_path / "x.parquet").vectors(2))


def test_lists_of_integers_are_refused(save):
    path = save(pa.table({"v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))}))
    with pytest.raises(BadInput, match=r"'v' .* holds int32, not floats"):
        open_source(path)


def test_labels_keep_their_nulls(save):
    path = save(pa.table({"a": ["x", None, "y"], "b": [1, 2, None]}))
    assert read_values(path, "a").to_pylist() == ["x", None, "y"]
    assert read_values(path, "b").to_pylist() == [1, 2, None]


def test_labels_in_a_dictionary_are_decoded(tmp_path):
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "x.parquet")
    assert read_values(tmp_path / "x.parquet", "a").to_pylist() == ["x", "y", "x"]


def test_columns_called_differently_inside_are_read(tmp_path):
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), 2)
    table = pa.table({"v": pa.array(VECTORS, kind)})
    pq.write_table(table, tmp_path / "x.parquet", use_compliant_nested_type=True)
    source = open_source(tmp_path / "x.parquet")
    layout = Layout(source.schema, source.column, source.rows)
    write_batches(tmp_path / "y.parquet", source.batches(3), layout)
    assert pq.read_table(tmp_path / "y.parquet").to_pylist() == table.to_pylist()


def test_a_row_group_is_no_larger_than_a_batch(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 2), np.float32))
    source = open_source(tmp_path / "x.npy")
    layout = Layout(source.schema, source.column, source.rows)
    write_batches(tmp_path / "x.parquet", source.batches(4), layout)
    metadata = pq.ParquetFile(tmp_path / "x.parquet").metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert groups == [4, 4, 2]


def test_without_lance_the_install_line_is_given(tmp_path):
    code = (
        "import sys; sys.modules['lance'] = None\n"
        "from crossfade.files import open_source\n"
        "open_source(sys.argv[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.lance")], capture_output=True, text=True
    )
    assert "needs pylance, which is not installed → pip install 'crossfade[lance]'" in ran.stderr
