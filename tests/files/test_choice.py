"""Which array of a file is taken, and what is said when it cannot be told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossfade.errors import BadInput
from crossfade.files import open_source, split_name

X = np.ones((3, 2), np.float32)


def column_of(tmp_path, column=None, **arrays):
    np.savez(tmp_path / "x.npz", **arrays)
    return open_source(tmp_path / "x.npz", column).column


def test_the_only_vectors_are_taken(tmp_path):
    assert column_of(tmp_path, ids=np.arange(3), foo=X) == "foo"


@pytest.mark.parametrize("name", ["vector", "vectors", "embedding", "embeddings"])
def test_of_several_the_usual_name_is_taken(tmp_path, name):
    assert column_of(tmp_path, foo=X, bar=X, **{name: X}) == name


def test_a_named_one_is_taken(tmp_path):
    assert column_of(tmp_path, "foo", foo=X, vector=X) == "foo"


def test_several_without_a_usual_name_are_listed(tmp_path):
    with pytest.raises(BadInput, match=r"holds 'foo' \(3 × 2 float32\), 'bar' .* → name one"):
        column_of(tmp_path, foo=X, bar=X)


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    with pytest.raises(BadInput, match=r"has no 'baz', only 'foo' .*, 'bar' .* → name one of"):
        column_of(tmp_path, "baz", foo=X, bar=X)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((3, 2), np.int64), "holds int64, not floats → give the model's own"),
        (np.ones(3), "has 1 dimension, not 2 → give one row per item"),
        (np.ones((3, 2, 2)), "has 3 dimensions, not 2"),
        (np.float32(1.0), "has 0 dimensions, not 2"),
        (np.ones((0, 2)), "is empty → give at least one vector"),
        (np.ones((3, 0)), "is empty"),
        (np.array(["a", "b"]), "has 1 dimension, not 2"),
    ],
)
def test_what_is_no_array_of_vectors_is_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(BadInput, match=message):
        open_source(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("a.npy", "a.npy", None),
        ("a.npz:old", "a.npz", "old"),
        ("d.npz/a.safetensors:x:y", "d.npz/a.safetensors", "x:y"),
        ("C:/a.parquet", "C:/a.parquet", None),
    ],
)
def test_a_place_is_a_file_and_perhaps_a_name(text, path, name):
    assert split_name(text) == (Path(path), name)
