"""Who is relevant to whom, and the lists that make no sense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.errors import BadInput, BadRow
from crossfade.retrieval import Listed, SameClass, from_qrels, own_by_id


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=20), st.booleans(), st.data())
def test_same_class_is_everyone_of_the_class(labels, alone, data):
    own = np.arange(len(labels)) if alone else None
    relevance = SameClass(np.array(labels), np.array(labels), own)
    first = data.draw(st.integers(0, len(labels) - 1))
    block = relevance.block(first, len(labels))
    for i, (start, count) in enumerate(zip(block.starts, block.counts, strict=True), first):
        expected = [
            j
            for j, label in enumerate(labels)
            if label == labels[i] != -1 and not (alone and i == j)
        ]
        assert sorted(block.items[start : start + count].tolist()) == expected


def test_grades_of_zero_and_judgements_of_oneself_are_left_out():
    own = np.array([0, 1, -1])
    listed = from_qrels([[0, 0, 3], [0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, -1]], 3, 3, own=own)
    block = listed.block(0, 3)
    assert (block.counts.tolist(), block.items.tolist()) == ([1, 0, 1], [1, 0])
    assert block.grades.tolist() == [2.0, 1.0]
    assert listed.block(1, 3).items.tolist() == [0]
    assert listed.block(1, 2).items.tolist() == []


def test_two_columns_of_qrels_are_judgements_without_grades():
    block = from_qrels(np.array([[1, 0], [0, 1]]), 2, 2).block(0, 2)
    assert (block.items.tolist(), block.grades) == ([1, 0], None)


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ([[0, 9, 1]], "row 0 names item 9, and there are 3, counted from 0"),
        ([[0, 1, 1], [-1, 1, 1]], "row 1 names query -1, and there are 2"),
        ([[0, 1, 1], [0, 1, 2]], "row 1 judges query 0 and item 1 a second time"),
        ([[0.5, 1, 1]], "the query indices are not whole numbers"),
        ([[0, 1, np.nan]], "row 0 has no grade"),
        ([0, 1, 2], r"qrels have the shape \(3,\)"),
        ([[0, 1, 2, 3]], r"qrels have the shape \(1, 4\)"),
        ([["0", "1"]], r"qrels have the shape .* → give rows of query index, item index"),
    ],
)
def test_qrels_that_make_no_sense_are_refused(qrels, message):
    with pytest.raises(BadInput, match=rf"qrels: .*{message}"):
        from_qrels(qrels, queries=2, gallery=3)


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(BadInput, match="differ in number"):
        Listed(2, 2, [0, 1], [0])


@pytest.mark.parametrize("own", [[0], [0, 5], [0, -2]])
def test_own_items_outside_the_gallery_are_refused(own):
    with pytest.raises(BadInput, match="own items must name one of 3 for each of 2 queries"):
        SameClass(np.zeros(2), np.zeros(3), np.array(own))


def test_own_items_are_found_by_id():
    assert own_by_id([7, 5, 8], [5, 6, 7]).tolist() == [2, 0, -1]
    assert own_by_id(["a"], []).tolist() == [-1]


@pytest.mark.parametrize("ids", [(["a", "b", "a"], ["c"]), (["c"], ["a", "b", "a"])])
def test_an_id_given_twice_is_refused(ids):
    with pytest.raises(BadInput, match="id 'a' is given 2 times, first in rows 0 and 2"):
        own_by_id(*ids)


def test_a_bad_judgement_is_named_by_file_and_row():
    with pytest.raises(BadRow, match=r"data/qrels\.npy: row 0 names item 4"):
        from_qrels([[0, 4]], 1, 1, where="data/qrels.npy")
