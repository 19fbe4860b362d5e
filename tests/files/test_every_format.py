"""What holds of every format, so that none is special."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossfade.errors import BadInput
from crossfade.files import Layout, list_arrays, open_source, write_batches

few = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 9))
dtypes = st.sampled_from([np.float16, np.float32, np.float64])
seeds = st.integers(0, 2**32 - 1)


def some(shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@few
@given(shape=shapes, dtype=dtypes, seed=seeds, piece=st.integers(1, 50))
def test_reading_in_pieces_gives_what_the_library_saved(library, shape, dtype, seed, piece):
    x = some(shape, dtype, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{library.extension}"
        library.save(path, x)
        source = open_source(path)
        assert (source.rows, source.dim, source.dtype) == (*shape, np.dtype(dtype))
        assert source.column == "vector"
        blocks = list(source.vectors(piece))
        assert [len(block) for block in blocks[:-1]] == [piece] * (len(blocks) - 1)
        np.testing.assert_array_equal(np.concatenate(blocks), x)
        assert all(batch.num_rows <= piece for batch in source.batches(piece))


@few
@given(shape=shapes, dtype=dtypes, seed=seeds, piece=st.integers(1, 50))
def test_the_library_loads_what_was_written_in_pieces(library, shape, dtype, seed, piece):
    x = some(shape, dtype, seed)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "from.npy", x)
        source = open_source(Path(folder) / "from.npy")
        path = Path(folder) / f"to.{library.extension}"
        layout = Layout(source.schema, source.column, source.rows)
        write_batches(path, source.batches(piece), layout)
        found = library.load(path)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, x)


def test_any_format_can_be_written_as_any_other(library, other_library, tmp_path):
    x = some((7, 3), np.float16)
    library.save(tmp_path / f"from.{library.extension}", x)
    source = open_source(tmp_path / f"from.{library.extension}")
    path = tmp_path / f"to.{other_library.extension}"
    write_batches(path, source.batches(2), Layout(source.schema, source.column, source.rows))
    np.testing.assert_array_equal(other_library.load(path), x)


def test_a_source_can_be_streamed_again(library, tmp_path):
    x = some((7, 3), np.float32)
    path = tmp_path / f"x.{library.extension}"
    library.save(path, x)
    source = open_source(path)
    next(source.vectors(2))
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate(list(source.vectors(3))), x)


def test_arrays_are_listed_with_shape_and_type(library, tmp_path):
    path = tmp_path / f"x.{library.extension}"
    library.save(path, some((7, 3), np.float32))
    (info,) = list_arrays(path)
    assert (info.name, info.shape, info.dtype) == ("vector", (7, 3), "float32")


def test_metadata_is_kept_where_the_format_has_a_place_for_it(library, tmp_path):
    np.save(tmp_path / "from.npy", some((7, 3), np.float32))
    source = open_source(tmp_path / "from.npy")
    schema = source.schema.with_metadata({"model": "é-5"})
    path = tmp_path / f"to.{library.extension}"
    write_batches(path, source.batches(2), Layout(schema, source.column, source.rows))
    expected = {} if library.extension in ("npy", "npz") else {"model": "é-5"}
    assert open_source(path).metadata == expected


def test_an_existing_target_is_refused_and_replaced_only_on_demand(library, tmp_path):
    path = tmp_path / f"x.{library.extension}"
    first, second = some((5, 3), np.float32, 1), some((6, 3), np.float32, 2)
    library.save(path, first)
    np.save(tmp_path / "from.npy", second)
    source = open_source(tmp_path / "from.npy")
    layout = Layout(source.schema, source.column, source.rows)
    with pytest.raises(BadInput, match=r"already exists → name another file, or add --overwrite"):
        write_batches(path, source.batches(2), layout)
    np.testing.assert_array_equal(library.load(path), first)
    write_batches(path, source.batches(2), layout, overwrite=True)
    np.testing.assert_array_equal(library.load(path), second)
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, "from.npy"}


def test_a_failure_half_way_leaves_the_target_as_it_was(library, tmp_path):
    path = tmp_path / f"x.{library.extension}"
    before = some((5, 3), np.float32, 1)
    library.save(path, before)
    np.save(tmp_path / "from.npy", some((6, 3), np.float32, 2))
    source = open_source(tmp_path / "from.npy")

    def failing():
        yield next(source.batches(2))
        raise KeyError("the caller's own error")

    layout = Layout(source.schema, source.column, source.rows)
    with pytest.raises(KeyError, match="own error"):
        write_batches(path, failing(), layout, overwrite=True)
    np.testing.assert_array_equal(library.load(path), before)
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, "from.npy"}


def test_fewer_rows_than_announced_are_not_written(library, tmp_path):
    np.save(tmp_path / "from.npy", some((6, 3), np.float32))
    source = open_source(tmp_path / "from.npy")
    path = tmp_path / f"x.{library.extension}"
    with pytest.raises(BadInput, match="gave 6 rows where 7 were announced"):
        write_batches(path, source.batches(2), Layout(source.schema, source.column, 7))
    assert not path.exists()
