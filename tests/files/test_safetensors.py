"""safetensors: what the library writes is read, what is written the library reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from crossfade.errors import BadInput
from crossfade.files import Layout, open_source, read_values, write_batches


def raw(path, entries, data=b""):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_other_tensors_and_metadata_are_copied_unchanged(tmp_path):
    tensors = {
        "vectors": np.ones((3, 3), np.float16),
        "labels": np.arange(3),
        "bytes": np.arange(5, dtype=np.uint8),
        "weight": np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32),
    }
    safetensors.numpy.save_file(tensors, tmp_path / "x.safetensors", {"model": "a"})
    source = open_source(tmp_path / "x.safetensors")
    assert source.metadata == {"model": "a"}
    assert set(source.others) == {"labels", "bytes", "weight"}
    layout = Layout(source.schema, source.column, source.rows, source.extras)
    write_batches(tmp_path / "y.safetensors", source.batches(2), layout)
    found = safetensors.numpy.load_file(tmp_path / "y.safetensors")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor)
    with safe_open(tmp_path / "y.safetensors", "np") as file:
        assert file.metadata() == {"model": "a"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False), min_size=1))
def test_bfloat16_is_read_as_float32(tmp_path_factory, numbers):
    import torch
    from safetensors.torch import save_file

    path = tmp_path_factory.mktemp("bf16") / "x.safetensors"
    tensor = torch.tensor([numbers], dtype=torch.bfloat16)
    save_file({"x": tensor}, path)
    source = open_source(path)
    assert source.dtype == np.float32
    np.testing.assert_array_equal(next(source.vectors(1)), tensor.float().numpy())


@pytest.mark.parametrize(
    ("entries", "data", "message"),
    [
        (b"{", b"", "a header that is not JSON"),
        (b"[" * 100_000, b"", "a header that is not JSON"),
        (b"[]", b"", "a header that is not a JSON object"),
        ({"x": entry(dtype="F33")}, bytes(16), "'x' of type 'F33'"),
        ({"x": entry(shape=(-2, -2))}, bytes(16), "'x' of type 'F32' and shape"),
        ({"x": entry(shape=(2, 3))}, bytes(16), "2 × 3 float32.* in 16 bytes"),
        ({"x": entry(offsets=(4, 20))}, bytes(20), "'x' at byte"),
        ({"x": entry(), "y": entry()}, bytes(32), "'y' at byte"),
        ({"x": {"dtype": "F32"}}, b"", "no type, shape and place for 'x'"),
        ({"x": 5}, b"", "no type, shape and place for 'x'"),
        ({"__metadata__": {"a": 1}}, b"", "metadata that is not text"),
        ({"x": entry()}, bytes(15), "is truncated: its tensors end at byte"),
        ({"x": entry(shape=(2**40, 2**40), offsets=(0, 2**82))}, b"", "is truncated"),
    ],
)
def test_a_header_is_checked_before_it_is_believed(tmp_path, entries, data, message):
    path = raw(tmp_path / "x.safetensors", entries, data)
    with pytest.raises(BadInput, match=message) as caught:
        open_source(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "→" in str(caught.value)


def test_a_header_longer_than_the_file_or_than_allowed_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((1000).to_bytes(8, "little") + b"{}")
    with pytest.raises(BadInput, match="its header takes 1000 bytes and 2 are there"):
        open_source(path)
    path.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(BadInput, match="is not a safetensors file"):
        open_source(path)
    path.write_bytes(b"abc")
    with pytest.raises(BadInput, match="is truncated: 3 bytes are no header"):
        open_source(path)


def test_labels_are_read(tmp_path):
    safetensors.numpy.save_file({"l": np.array([5, 6], np.int32)}, tmp_path / "x.safetensors")
    assert read_values(tmp_path / "x.safetensors").to_pylist() == [5, 6]
