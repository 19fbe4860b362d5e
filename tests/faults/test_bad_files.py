"""Files that are missing, empty, cut short, damaged or something else."""

from __future__ import annotations

import zipfile

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from crossfade.errors import BadInput
from crossfade.files import open_source, read_values

FILES = ("npy", "npz", "safetensors", "parquet")


def save(path):
    x = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    match path.suffix:
        case ".npy":
            np.save(path, x)
        case ".npz":
            np.savez(path, vector=x)
        case ".safetensors":
            safetensors.numpy.save_file({"vector": x}, path)
        case ".parquet":
            pq.write_table(pa.table({"vector": pa.array(x.tolist(), pa.list_(pa.float32()))}), path)


def said(path):
    with pytest.raises(BadInput) as caught:
        list(open_source(path).batches(100))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert " → " in message
    assert caught.value.exit_code == 2
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("extension", [*FILES, "lance"])
def test_a_missing_file(tmp_path, extension):
    assert said(tmp_path / f"x.{extension}").startswith("no such f")


@pytest.mark.parametrize("extension", FILES)
def test_an_empty_file(tmp_path, extension):
    (tmp_path / f"x.{extension}").touch()
    assert said(tmp_path / f"x.{extension}") == "is empty (0 bytes) → write it again"


@pytest.mark.parametrize("extension", FILES)
def test_a_folder_where_a_file_should_be(tmp_path, extension):
    (tmp_path / f"x.{extension}").mkdir()
    assert said(tmp_path / f"x.{extension}").startswith("is a folder, not a file")


@pytest.mark.parametrize("extension", FILES)
@pytest.mark.parametrize("share", [0.0005, 0.01, 0.5, 0.999])
def test_a_file_cut_short(tmp_path, extension, share):
    path = tmp_path / f"x.{extension}"
    save(path)
    data = path.read_bytes()
    path.write_bytes(data[: max(1, int(len(data) * share))])
    message = said(path)
    assert any(word in message for word in ("truncated", "damaged", "not an array"))


@pytest.mark.parametrize("extension", FILES)
def test_a_file_of_something_else(tmp_path, extension):
    path = tmp_path / f"x.{extension}"
    path.write_bytes(b"<html>404 not found</html>" * 40)
    message = said(path)
    assert "is not a" in message or "damaged" in message


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = tmp_path / "x.npy"
    save(path)
    batches = open_source(path).batches(100)
    next(batches)
    with path.open("r+b") as file:
        file.truncate(8000)
    with pytest.raises(BadInput, match="is truncated: it ends within the block of rows that begin"):
        list(batches)


def test_a_changed_byte_in_a_zip(tmp_path):
    path = tmp_path / "x.npz"
    save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert said(path).startswith("is damaged (Bad CRC-32")


def test_a_changed_byte_in_a_compressed_zip(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, vector=np.random.default_rng(0).normal(size=(500, 8)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert said(path).startswith("is damaged (")


# Where the zip format keeps them: in the header before a member, and in the list at the end.
@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ({b"PK\x03\x04": 6, b"PK\x01\x02": 8}, 1, "password required"),
        ({b"PK\x03\x04": 8, b"PK\x01\x02": 10}, 97, "compression method is not supported"),
    ],
    ids=["a password", "an unknown packer"],
)
def test_a_zip_that_cannot_be_unpacked(tmp_path, field, value, cause):
    path = tmp_path / "x.npz"
    save(path)
    data = bytearray(path.read_bytes())
    for mark, offset in field.items():
        data[data.index(mark) + offset] = value
    path.write_bytes(data)
    words = said(path)
    assert words.startswith("cannot be unpacked (")
    assert cause in words


def test_a_zip_without_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    assert said(tmp_path / "x.npz").startswith("holds nothing, and it is not clear")


def test_pickled_objects_are_not_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}] * 3, dtype=object), allow_pickle=True)
    assert "'vector' (3 Python objects) has 1 dimension" in said(tmp_path / "x.npy")
    with pytest.raises(BadInput, match="holds pickled Python objects, which are not loaded"):
        read_values(tmp_path / "x.npy")


def test_a_folder_that_is_no_lance_dataset(tmp_path):
    (tmp_path / "x.lance").mkdir()
    assert said(tmp_path / "x.lance").startswith("is not a Lance dataset, or is damaged")
    (tmp_path / "y.lance").touch()
    assert said(tmp_path / "y.lance").startswith("is not the folder of a Lance dataset")


def test_a_lance_dataset_with_a_missing_data_file(tmp_path):
    table = pa.table({"v": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))})
    lance.write_dataset(table, str(tmp_path / "x.lance"))
    for file in (tmp_path / "x.lance" / "data").iterdir():
        file.unlink()
    assert said(tmp_path / "x.lance").startswith("is not a Lance dataset, or is damaged")


def test_an_extension_that_is_not_known(tmp_path):
    assert said(tmp_path / "x.csv") == (
        "the extension '.csv' is not known "
        "→ name a file that ends in .npy, .npz, .safetensors, .parquet, .lance, .faiss, .index"
    )
