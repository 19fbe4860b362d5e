"""Ids: numbers and strings in order, told apart, and compared with a gallery's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.backfill import ids as module
from crossfade.backfill.classes import check_classes, class_codes, class_names, encoded
from crossfade.backfill.ids import Ids
from crossfade.errors import BadInput

kinds = st.sampled_from(["rows", "numbers", "strings", "large strings"])


def column(kind, numbers):
    if kind in ("rows", "numbers"):
        return pa.array(numbers)
    return pa.array(
        [f"id-{n}" for n in numbers], pa.string() if kind == "strings" else pa.large_string()
    )


# Some that are equal, that differ in the last bit alone, and zeros of both signs.
urgent = st.sampled_from([0.0, -0.0, 1.0, np.nextafter(1.0, 2.0), -1.0, np.nextafter(-1.0, 0.0)])
any_urgent = urgent | st.floats(allow_nan=False, allow_infinity=False)


@given(kinds, st.lists(any_urgent, min_size=1, max_size=30), st.randoms())
def test_the_most_urgent_is_first_and_ties_go_by_id(kind, urgencies, random):
    numbers = list(range(len(urgencies)))
    if kind != "rows":
        random.shuffle(numbers)
    values = column(kind, numbers)
    ids = Ids(None if kind == "rows" else values, len(numbers))
    rows = ids.most_urgent_first(np.array(urgencies, float))
    named = values.to_pylist()
    expected = sorted(range(len(numbers)), key=lambda i: (-urgencies[i], named[i]))
    assert rows.tolist() == expected


def test_without_ids_rows_are_numbered():
    ids = Ids(None, 4)
    assert ids.keys(slice(1, 3)).tolist() == [1, 2]
    assert ids.most_urgent_first(np.array([0.0, 1.0, 1.0, 0.5])).tolist() == [1, 2, 3, 0]


def test_the_hash_of_a_string_is_its_own_wherever_it_stands():
    names = [f"item {i}" for i in range(500)] + ["", "é", "a" * 1000]
    ids = Ids(pa.array(names), len(names))
    whole = ids.keys(slice(0, len(names)))
    assert len(np.unique(whole)) == len(names)
    assert np.array_equal(ids.keys(slice(200, 300)), whole[200:300])
    # FNV-1a of nothing and of "a", from its definition.
    plain = Ids(pa.array(["", "a"]), 2).keys(slice(0, 2)).view(np.uint64).tolist()
    assert plain == [0xCBF29CE484222325, 0xAF63DC4C8601EC8C]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1, 2, 1]), r"an id is given twice \(1\)"),
        (pa.array(["a", "b", "a"]), r"an id is given twice \('a'\)"),
        (pa.array(["a", None, "b"]), "row 1 has no id"),
        (pa.array([1, 2]), "there are 2 ids for 3 rows"),
        (pa.array([1.5, 2.5, 3.5]), "ids are double → give whole numbers or strings"),
        (np.array(["a", 1, None], dtype=object), "ids mix types"),
    ],
)
def test_what_are_no_ids_is_refused(values, message):
    with pytest.raises(BadInput, match=message):
        Ids(values, 3)


def test_strings_that_only_share_a_hash_are_two(monkeypatch):
    monkeypatch.setattr(module, "_hashes", lambda column: np.zeros(len(column), np.int64))
    Ids(pa.array(["a", "b", "c"]), 3)
    with pytest.raises(BadInput, match="given twice"):
        Ids(pa.array(["a", "b", "a"]), 3)


def test_classes_are_found_by_name():
    assert coded(pa.array(["b", None, "a", "b"]), ["a", "b"]) == ([1, -1, 0, 1], 2, [])
    codes, classes, notes = coded(np.array([7.0, 9.0, np.nan]), [5, 7, 9])
    assert (codes, classes) == ([1, 2, -1], 3)
    assert notes == ["1 of the plan's 3 classes is not in the gallery (5)"]
    assert class_names(np.array([3, 1, 3])) == [1, 3]


def test_classes_that_the_gallery_alone_has_come_after_the_plans():
    codes, classes, notes = coded(pa.array(["y", "a", "x", "y"]), ["a", "b"])
    assert (codes, classes) == ([2, 0, 3, 2], 4)
    assert notes == [
        "2 of the gallery's 3 classes are unknown to the plan, whose curve does not speak of them "
        "('y', 'x')",
        "1 of the plan's 2 classes is not in the gallery ('b')",
    ]


def coded(labels, known):
    codes, classes = class_codes(labels, known, "labels")
    return codes.tolist(), classes, check_classes(encoded(labels, "labels"), known, "labels")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["x", "y"], r"none of its classes \('x', 'y'\) is among the plan's \('a', 'b'\)"),
        ([0, 1], "none of its classes"),
    ],
)
def test_classes_of_which_the_plan_knows_none_are_refused(labels, message):
    with pytest.raises(BadInput, match=message):
        check_classes(encoded(pa.array(labels), "labels"), ["a", "b"], "labels")
