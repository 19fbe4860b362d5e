"""npy and npz: byte orders, Fortran order, several members, compression."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.errors import BadInput
from crossfade.files import Layout, left_out, open_source, read_values, write_batches


def test_fortran_order_is_read_by_rows(tmp_path):
    x = np.asfortranarray(np.random.default_rng(0).normal(size=(11, 4)))
    np.save(tmp_path / "x.npy", x)
    blocks = list(open_source(tmp_path / "x.npy").vectors(3))
    np.testing.assert_array_equal(np.concatenate(blocks), x)


def test_big_endian_numbers_are_read(tmp_path):
    x = np.arange(6, dtype=">f4").reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    (block,) = open_source(tmp_path / "x.npy").vectors(3)
    assert block.dtype == np.dtype("=f4")
    np.testing.assert_array_equal(block, x)


def test_a_compressed_member_is_streamed(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float16)
    np.savez_compressed(tmp_path / "x.npz", ids=np.arange(300), text=x)
    source = open_source(tmp_path / "x.npz")
    assert source.column == "text"
    assert source.others == ("ids",)
    np.testing.assert_array_equal(np.concatenate(list(source.vectors(7))), x)


def test_fortran_order_in_an_npz_is_refused_with_the_remedy(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.asfortranarray(np.ones((3, 2))))
    with pytest.raises(BadInput, match=r"column by column.*→ save it again with np.ascontig"):
        open_source(tmp_path / "x.npz")


def test_other_members_are_copied_unchanged(tmp_path):
    x = np.ones((3, 2), np.float16)
    ids, names = np.arange(3), np.array(["a", "bb", "c"])
    np.savez(tmp_path / "x.npz", ids=ids, vectors=x, names=names, table=np.eye(2))
    source = open_source(tmp_path / "x.npz")
    layout = Layout(source.schema, source.column, source.rows, source.extras)
    write_batches(tmp_path / "y.npz", source.batches(2), layout)
    with np.load(tmp_path / "y.npz") as found:
        assert set(found) == {"ids", "vectors", "names", "table"}
        np.testing.assert_array_equal(found["ids"], ids)
        np.testing.assert_array_equal(found["names"], names)
        np.testing.assert_array_equal(found["table"], np.eye(2))
    assert left_out("y.npz", layout) == ()
    assert left_out("y.npy", layout) == ("ids", "names", "table")


def test_labels_are_read_as_numbers_or_strings(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.array([3, 1]), b=np.array(["x", "yy"]), c=np.array([b"q"]))
    assert read_values(tmp_path / "x.npz", "a").to_pylist() == [3, 1]
    assert read_values(tmp_path / "x.npz", "b").to_pylist() == ["x", "yy"]
    assert read_values(tmp_path / "x.npz", "c").to_pylist() == ["q"]
