"""Pairs: where they are found, streamed, loaded, split and described."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from crossfade.errors import BadInput
from crossfade.pairs import Pairs

ROWS, OLD_DIM, NEW_DIM = 60, 5, 7


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "old": rng.normal(size=(ROWS, OLD_DIM)).astype(np.float16),
        "new": rng.normal(size=(ROWS, NEW_DIM)).astype(np.float32),
        "labels": rng.permutation(np.arange(ROWS) % 6) * 10,
    }


def as_table(arrays):
    def column(x):
        return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])

    return pa.table({k: pa.array(v) if v.ndim == 1 else column(v) for k, v in arrays.items()})


def save(path, arrays):
    match path.suffix:
        case ".npz":
            np.savez(path, **arrays)
        case ".safetensors":
            safetensors.numpy.save_file(arrays, path)
        case ".parquet":
            pq.write_table(as_table(arrays), path, row_group_size=13)
        case ".lance":
            lance.write_dataset(as_table(arrays), str(path), max_rows_per_file=17)
    return path


def same(pairs, arrays, rows=slice(None)):
    np.testing.assert_array_equal(pairs.old, arrays["old"][rows].astype(np.float32))
    np.testing.assert_array_equal(pairs.new, arrays["new"][rows])
    np.testing.assert_array_equal(pairs.classes[pairs.labels], arrays["labels"][rows])


@pytest.mark.parametrize("extension", ["npz", "safetensors", "parquet", "lance"])
def test_one_file_of_any_format_is_read(tmp_path, arrays, extension):
    pairs = Pairs.open(save(tmp_path / f"pairs.{extension}", arrays))
    assert (pairs.rows, pairs.old_dim, pairs.new_dim) == (ROWS, OLD_DIM, NEW_DIM)
    assert pairs.classes.tolist() == [0, 10, 20, 30, 40, 50]
    same(pairs.load(), arrays)
    assert pairs.load().old.flags.c_contiguous
    assert pairs.load().old.dtype == np.float32


@pytest.mark.parametrize("size", [1, 7, 60, 1000])
@pytest.mark.parametrize("extension", ["npz", "parquet"])
def test_batches_put_together_are_the_whole(tmp_path, arrays, extension, size):
    pairs = Pairs.open(save(tmp_path / f"pairs.{extension}", arrays))
    whole = pairs.load()
    for streamed in (pairs, whole):
        batches = list(streamed.batches(size))
        assert [batch.start for batch in batches] == list(range(0, ROWS, size))
        np.testing.assert_array_equal(np.concatenate([b.old for b in batches]), whole.old)
        np.testing.assert_array_equal(np.concatenate([b.new for b in batches]), whole.new)
        np.testing.assert_array_equal(np.concatenate([b.labels for b in batches]), whole.labels)


def test_sides_may_lie_in_files_of_different_formats(tmp_path, arrays):
    save(tmp_path / "all.safetensors", {"train": arrays["old"], "test": arrays["old"][:9]})
    save(tmp_path / "new.parquet", {"embedding": arrays["new"], "id": np.arange(ROWS)})
    np.save(tmp_path / "labels.npy", arrays["labels"])
    pairs = Pairs.open(
        old=f"{tmp_path}/all.safetensors:train",
        new=tmp_path / "new.parquet",
        labels=tmp_path / "labels.npy",
    )
    same(pairs.load(), arrays)
    batches = list(pairs.batches(11))
    assert [len(batch.old) for batch in batches] == [len(batch.new) for batch in batches]


def test_other_names_can_be_given(tmp_path, arrays):
    renamed = {"a": arrays["old"], "b": arrays["new"], "c": arrays["labels"]}
    path = save(tmp_path / "pairs.npz", renamed)
    same(Pairs.open(path, old_name="a", new_name="b", labels_name="c").load(), arrays)


def test_labels_are_optional_and_can_be_ignored(tmp_path, arrays):
    path = save(tmp_path / "pairs.npz", arrays)
    assert Pairs.open(path, use_labels=False).labels is None
    del arrays["labels"]
    pairs = Pairs.open(save(tmp_path / "bare.npz", arrays))
    assert pairs.labels is None
    assert pairs.classes is None
    assert next(pairs.batches()).labels is None
    assert pairs.load().take([1, 2]).labels is None


@pytest.mark.parametrize(
    "labels",
    [
        np.array(list("abcabc")),
        np.array([2.0, 1, 5, 2, 1, 5]),
        np.array([2**63 + 1, 0, 7] * 2, "u8"),
    ],
)
def test_labels_are_strings_or_whole_numbers(labels):
    rng = np.random.default_rng(0)
    pairs = Pairs.from_arrays(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), labels)
    assert pairs.labels.dtype == np.int64
    assert sorted(set(pairs.labels.tolist())) == [0, 1, 2]
    assert pairs.classes[pairs.labels].tolist() == labels.tolist()


def test_taking_rows_keeps_what_label_codes_mean(arrays):
    pairs = Pairs.from_arrays(**arrays)
    chosen = np.array([3, 59, 0])
    taken = pairs.take(chosen)
    assert taken.rows == 3
    same(taken, arrays, chosen)
    same(pairs.take(arrays["labels"] == 20), arrays, arrays["labels"] == 20)


def test_dropping_bad_rows_also_drops_those_left_alone_in_their_class(tmp_path, arrays):
    arrays["labels"] = np.arange(ROWS) // 2
    arrays["old"][3] = np.nan  # leaves row 2 alone in class 1
    arrays["new"][10] = 0  # leaves row 11 alone in class 5
    arrays["new"][20, 1] = np.inf  # leaves row 21 alone in class 10
    arrays["labels"][40] = 99  # alone from the start, and leaves row 41 alone
    path = save(tmp_path / "pairs.npz", arrays)
    pairs = Pairs.open(path, drop_bad_rows=True)
    kept = np.setdiff1d(np.arange(ROWS), [2, 3, 10, 11, 20, 21, 40, 41])
    assert (pairs.rows, pairs.dropped) == (len(kept), 8)
    same(pairs.load(), arrays, kept)
    batches = list(pairs.batches(7))
    np.testing.assert_array_equal(np.concatenate([b.old for b in batches]), pairs.load().old)
    starts = np.cumsum([0, *(len(b.old) for b in batches)])[:-1]
    assert [b.start for b in batches] == starts.tolist()
    assert pairs.load().dropped == 8
    assert len(pairs.classes) == pairs.labels.max() + 1


def test_dropping_leaves_out_rows_without_a_label(tmp_path, arrays):
    table = as_table(arrays)
    labels = arrays["labels"].tolist()
    labels[4] = None
    table = table.set_column(2, "labels", pa.array(labels))
    pq.write_table(table, tmp_path / "pairs.parquet")
    pairs = Pairs.open(tmp_path / "pairs.parquet", drop_bad_rows=True)
    same(pairs.load(), arrays, np.delete(np.arange(ROWS), 4))


def test_a_description_counts_what_is_bad_and_stops_for_none_of_it(tmp_path, arrays):
    arrays["old"][3] = np.nan
    arrays["old"][5] = 0
    arrays["new"][7, 0] = -np.inf
    arrays["labels"][9] = 77
    path = save(tmp_path / "pairs.npz", arrays)
    found = Pairs.open(path, strict=False).describe()
    json.dumps(found)
    assert found["rows"] == ROWS
    assert (found["old"]["dim"], found["old"]["dtype"]) == (OLD_DIM, "float16")
    assert found["old"]["bad_rows"] == {
        "count": 2,
        "first": [{"row": 3, "problem": "has a NaN"}, {"row": 5, "problem": "is all zeros"}],
    }
    assert found["new"]["bad_rows"]["first"] == [{"row": 7, "problem": "has an infinite value"}]
    norms = np.linalg.norm(np.delete(arrays["new"], 7, axis=0).astype(np.float64), axis=1)
    expected = {"min": norms.min(), "mean": norms.mean(), "max": norms.max()}
    assert found["new"]["norms"] == pytest.approx(expected)
    assert found["labels"]["classes"] == 7
    assert found["labels"]["smallest"] == {"class": 77, "items": 1}
    assert found["labels"]["largest"]["items"] == 10
    assert found["labels"]["single_item"] == {"count": 1, "first": [{"class": 77, "row": 9}]}


def test_the_description_of_loaded_pairs_has_their_classes(arrays):
    assert Pairs.from_arrays(**arrays).describe()["labels"]["classes"] == 6


def test_very_large_and_very_small_numbers_are_good(arrays):
    arrays["new"][0] = 1e30
    arrays["new"][1] = 1e-30
    assert Pairs.from_arrays(**arrays).describe()["new"]["bad_rows"]["count"] == 0


def test_vectors_of_streamed_pairs_are_not_at_hand(tmp_path, arrays):
    pairs = Pairs.open(save(tmp_path / "pairs.npz", arrays))
    with pytest.raises(BadInput, match=r"not loaded → call load\(\) first"):
        _ = pairs.old
