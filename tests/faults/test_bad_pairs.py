"""Every way in which pairs can be bad: file, row and cause are named, then the next step."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from crossfade.errors import BadInput, BadRow
from crossfade.pairs import Pairs

ROWS = 20


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "old": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "new": rng.normal(size=(ROWS, 4)).astype(np.float32),
        "labels": np.arange(ROWS) // 2,
    }


@pytest.fixture
def said(tmp_path, arrays):
    """What opening and loading the arrays, saved as pairs.npz, says."""

    def say(kind=BadInput, **options):
        path = tmp_path / "pairs.npz"
        np.savez(path, **arrays)
        with pytest.raises(kind) as caught:
            Pairs.open(path, **options).load()
        assert caught.value.exit_code == 2
        return str(caught.value).replace(f"{tmp_path}/", "")

    return say


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [(np.nan, "has a NaN"), (np.inf, "has an infinite value"), (0.0, "is all zeros")],
)
def test_a_bad_row_is_named(said, arrays, side, value, problem):
    arrays[side][17] = value
    assert said(BadRow) == (
        f"pairs.npz: row 17 of '{side}' {problem} → drop it with --drop-bad-rows or re-embed it"
    )


def test_a_bad_row_of_arrays_is_named(arrays):
    arrays["old"][4, 2] = np.nan
    with pytest.raises(BadRow, match=r"^pairs: row 4 of 'old' has a NaN → "):
        Pairs.from_arrays(**arrays)


def test_a_bad_row_beyond_the_first_batch_has_the_row_of_the_file(tmp_path, arrays):
    arrays["new"][17, 2] = np.nan
    np.savez(tmp_path / "pairs.npz", **arrays)
    with pytest.raises(BadRow) as caught:
        list(Pairs.open(tmp_path / "pairs.npz").batches(5))
    assert (caught.value.row, caught.value.side) == (17, "new")


def test_a_float64_beyond_float32_is_a_bad_row(said, arrays):
    arrays["old"] = arrays["old"].astype(np.float64)
    arrays["old"][2, 0] = 1e300
    assert "row 2 of 'old' has an infinite value" in said(BadRow)


def test_unequal_row_counts(said, arrays):
    arrays["new"] = arrays["new"][:-3]
    assert said() == (
        "pairs.npz: 'old' has 20 rows and 'new' has 17 "
        "→ give the same items in the same order to both models"
    )


def test_labels_of_another_length(said, arrays):
    arrays["labels"] = arrays["labels"][:-1]
    assert said().startswith("pairs.npz: 'labels' has 19 values for 20 rows → ")


def test_one_class_only(said, arrays):
    arrays["labels"][:] = 3
    assert said().startswith("pairs.npz: the labels have only one class → give labels of at least")
    assert "only one class" in said(drop_bad_rows=True)


def test_a_class_with_a_single_item(said, arrays):
    arrays["labels"] = np.array([f"class{label}" for label in arrays["labels"]])
    arrays["labels"][6] = "odd"
    arrays["labels"][7] = "class2"
    assert said() == (
        "pairs.npz: class 'odd' has a single item, row 6 "
        "→ drop it with --drop-bad-rows, or fit without labels with --no-labels"
    )
    arrays["labels"][9] = "even"
    assert "row 6, as have 2 other classes" in said()


def test_a_missing_label(said, arrays, tmp_path):
    arrays["labels"] = arrays["labels"].astype(np.float64)
    arrays["labels"][5] = np.nan
    assert said(BadRow).startswith("pairs.npz: row 5 of 'labels' has no value → drop it with")
    table = pa.table(
        {
            "old": pa.array(arrays["old"].tolist(), pa.list_(pa.float32())),
            "new": pa.array(arrays["new"].tolist(), pa.list_(pa.float32())),
            "labels": ["x", "y", None, "y", *"xy" * 8],
        }
    )
    pq.write_table(table, tmp_path / "pairs.parquet")
    with pytest.raises(BadRow, match="row 2 of 'labels' has no value"):
        Pairs.open(tmp_path / "pairs.parquet")


def test_a_label_that_is_no_whole_number(said, arrays):
    arrays["labels"] = arrays["labels"] + 0.5
    assert "row 0 of 'labels' is 0.5, not a whole number → " in said(BadRow)


def test_labels_that_are_python_objects_are_not_unpickled(said, arrays):
    arrays["labels"] = np.array([{"a": 1}] * ROWS, dtype=object)
    assert said().startswith("pairs.npz: 'labels' holds pickled Python objects, which are not")


def test_labels_of_two_dimensions(said, arrays):
    arrays["labels"] = np.ones((ROWS, 2), int)
    assert "'labels' (20 × 2 int64) has 2 dimensions, not 1" in said()
    with pytest.raises(BadInput, match="the labels have 2 dimensions, not 1"):
        Pairs.from_arrays(**arrays)


def test_labels_of_mixed_types(arrays):
    arrays["labels"] = np.array(["a", 1] * 10, dtype=object)
    with pytest.raises(BadInput, match="the labels mix types"):
        Pairs.from_arrays(**arrays)


def test_integer_vectors(said, arrays):
    arrays["new"] = (arrays["new"] * 100).astype(np.int8)
    assert said().startswith("pairs.npz: 'new' (20 × 4 int8) holds int8, not floats → ")
    with pytest.raises(BadInput, match=r"'new' .20 × 4 int8. holds int8, not floats"):
        Pairs.from_arrays(**arrays)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((0, 4), "is empty"), ((20, 0), "is empty"), ((20,), "has 1 dimension, not 2")],
)
def test_arrays_that_are_no_vectors(said, arrays, shape, message):
    arrays["new"] = np.ones(shape, np.float32)
    assert message in said()


def test_too_few_rows(said, arrays):
    arrays.update({name: array[:3] for name, array in arrays.items()})
    del arrays["labels"]
    assert said() == "pairs.npz: has 3 rows → give at least 4 pairs"


def test_too_few_good_rows(said, arrays):
    del arrays["labels"]
    arrays["old"][3:] = np.nan
    assert "only 3 of 20 rows are good → give at least 4 good pairs" in said(drop_bad_rows=True)


def test_missing_names_are_answered_with_those_there_are(tmp_path, arrays):
    path = tmp_path / "banking.safetensors"
    safetensors.numpy.save_file({"minilm": arrays["old"], "mpnet": arrays["new"]}, path)
    with pytest.raises(BadInput) as caught:
        Pairs.open(path)
    assert str(caught.value) == (
        f"{path}: has no 'old' and no 'new', only 'minilm' (20 × 3 float32), "
        "'mpnet' (20 × 4 float32) "
        "→ name the arrays with --old FILE:NAME --new FILE:NAME [--labels FILE:NAME]"
    )
    with pytest.raises(BadInput, match=r"has no 'ada', only 'minilm'"):
        Pairs.open(old=f"{path}:ada", new=f"{path}:mpnet")
    with pytest.raises(BadInput, match=r"holds 'minilm'.*→ name one, .* as FILE:NAME"):
        Pairs.open(old=path, new=f"{path}:mpnet")


def test_labels_that_were_named_have_to_be_there(said):
    assert "has no 'intent', only 'old'" in said(labels_name="intent")


def test_pairs_named_not_at_all_half_or_twice(tmp_path):
    with pytest.raises(BadInput, match="no old and new vectors were named → name one file with"):
        Pairs.open()
    with pytest.raises(BadInput, match="no new vectors were named"):
        Pairs.open(old="a.npy")
    with pytest.raises(BadInput, match="pairs are named twice"):
        Pairs.open("a.npz", old="b.npy")


def test_a_null_vector(tmp_path, arrays):
    rows = arrays["old"].tolist()
    rows[6] = None
    table = pa.table(
        {
            "old": pa.array(rows, pa.list_(pa.float32(), 3)),
            "new": pa.array(arrays["new"].tolist(), pa.list_(pa.float32(), 4)),
        }
    )
    pq.write_table(table, tmp_path / "pairs.parquet")
    with pytest.raises(BadRow, match=r"pairs.parquet: row 6 of 'old' is null → "):
        Pairs.open(tmp_path / "pairs.parquet").load()
