"""Held-out rows: who queries whom, and what does not belong together."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs


def pairs(rows=8, labels=None, seed=0, d=3, n=4):
    rng = np.random.default_rng(seed)
    return Pairs.from_arrays(rng.normal(size=(rows, d)), rng.normal(size=(rows, n)), labels)


def relevant(held, query):
    return sorted(held.relevance.block(query, query + 1).items.tolist())


def test_a_single_set_of_pairs_queries_itself():
    held = Held.of(pairs(labels=list("aabbccdd")))
    assert (held.source, held.queries, held.gallery) == ("labels", 8, 8)
    assert relevant(held, 0) == [1]
    assert held.query_classes.tolist() == list("aabbccdd")


def test_labels_of_queries_and_gallery_are_matched_by_name():
    gallery, queries = pairs(labels=list("bbccddee")), pairs(rows=4, labels=list("ccbb"), seed=1)
    held = Held.of(gallery, queries)
    assert held.own is None
    assert [relevant(held, i) for i in range(4)] == [[2, 3], [2, 3], [0, 1], [0, 1]]


def test_separate_queries_are_found_in_the_gallery_by_id():
    gallery, queries = (
        pairs(labels=[0, 0, 0, 0, 1, 1, 1, 1]),
        pairs(rows=4, labels=[0, 0, 1, 1], seed=1),
    )
    ids = ["a", "b", "c", "d", "e", "f", "g", "h"]
    held = Held.of(gallery, queries, ids=ids, query_ids=["b", "x", "h", "y"])
    assert held.own.tolist() == [1, -1, 7, -1]
    assert relevant(held, 0) == [0, 2, 3]
    assert relevant(held, 1) == [0, 1, 2, 3]


def test_qrels_come_before_labels():
    held = Held.of(pairs(labels=[0, 0, 1, 1, 2, 2, 3, 3]), qrels=[[0, 5, 1], [0, 0, 1]])
    assert held.source == "qrels"
    # A row does not find itself.
    assert relevant(held, 0) == [5]
    assert held.query_classes is None


def test_without_labels_and_qrels_there_is_nothing_relevant_yet():
    held = Held.of(pairs())
    assert (held.relevance, held.source) == (None, "neighbours")


@pytest.mark.parametrize(
    ("gallery", "queries", "options", "message"),
    [
        ({}, {"d": 5}, {}, "queries have dimensions 5 and 4, the gallery 3 and 4"),
        (
            {"labels": [0, 0, 0, 0, 1, 1, 1, 1]},
            {},
            {},
            "only one of gallery and queries has labels",
        ),
        (
            {"labels": [0, 0, 0, 0, 1, 1, 1, 1]},
            {"labels": list("aabbccdd")},
            {},
            "labels are int64 in the gallery and <U1 in the queries",
        ),
        ({}, None, {"qrels": [[0, 8, 1]]}, "row 0 names item 8, and there are 8"),
        ({}, None, {"qrels": [[8, 0, 1]]}, "row 0 names query 8, and there are 8"),
        ({}, {}, {"ids": range(8)}, "ids are given for one of gallery and queries"),
        ({}, {}, {"query_ids": range(8)}, "ids are given for one of gallery and queries"),
        ({}, None, {"ids": range(7)}, "there are 7 gallery ids for 8 rows"),
        (
            {},
            None,
            {"ids": [0, 1, 2, 3, 4, 5, 6, 0]},
            "id 0 is given 2 times, first in rows 0 and 7",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(gallery, queries, options, message):
    asked = None if queries is None else pairs(seed=1, **queries)
    with pytest.raises(BadInput, match=message):
        Held.of(pairs(**gallery), asked, **options)


def test_one_models_vectors_given_twice_are_refused():
    x = np.random.default_rng(0).normal(size=(8, 3))
    with pytest.raises(BadInput, match=r"'old' and 'new' hold the same vectors → give the vectors"):
        Held.of(Pairs.from_arrays(x, x))
