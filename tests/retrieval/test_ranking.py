"""Ranks and metrics against brute force and scikit-learn."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from crossfade.errors import BadInput
from crossfade.retrieval import (
    check_metric,
    cmc,
    mean_ap,
    neighbours,
    relevant_ranks,
    same_class,
    score,
)
from crossfade.retrieval.ranking import unit_rows

# Vectors of length 1 or 2 with whole coordinates: their cosines are exact in float32, ties and all.
EXACT = np.array(
    [
        v
        for v in np.ndindex(3, 3, 3, 3)
        if np.sum((np.array(v) - 1) ** 2) in (1, 4)
    ]
) - 1.0  # fmt: skip


def exact_cosine(a, b):
    lengths = math.isqrt(int(a @ a)) * math.isqrt(int(b @ b))
    return Fraction(int(a @ b), lengths)


def ranks_by_hand(queries, gallery, relevant, leave_one_out):
    out = []
    for i, q in enumerate(queries):
        wanted = set(relevant[i])
        items = [j for j in range(len(gallery)) if not (leave_one_out and i == j)]
        # Of equal scores the irrelevant stand first.
        items.sort(key=lambda j, q=q, wanted=wanted: (-exact_cosine(q, gallery[j]), j in wanted))
        out.append([place for place, j in enumerate(items, 1) if j in wanted])
    return out


@st.composite
def with_ties(draw):
    rows = draw(st.integers(2, 12))
    picks = st.lists(st.integers(0, len(EXACT) - 1), min_size=rows, max_size=rows)
    labels = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    return EXACT[draw(picks)], EXACT[draw(picks)], np.array(labels)


@given(with_ties(), st.booleans(), st.integers(1, 5))
def test_ranks_are_those_of_a_sorted_gallery_with_relevant_items_last_of_equals(case, loo, chunk):
    queries, gallery, labels = case
    relevant = same_class(labels, leave_one_out=loo)
    found = relevant_ranks(queries, gallery, relevant, leave_one_out=loo, chunk=chunk)
    expected = ranks_by_hand(queries, gallery, relevant, loo)
    assert [r.tolist() for r in found] == expected


def test_a_gallery_of_one_and_the_same_vector_finds_nothing_early():
    same = np.ones((6, 4))
    labels = np.array([0, 0, 1, 1, 1, 2])
    ranks = relevant_ranks(same, same, same_class(labels))
    assert [r.tolist() for r in ranks] == [[5], [5], [4, 5], [4, 5], [4, 5], []]
    assert cmc(ranks, 1) == 0.0


def test_the_item_left_out_is_the_one_of_the_same_index():
    x = np.eye(3)[[0, 0, 1]]
    # Query 0's twin, item 1, is a relevant item, and stands first: item 0 is left out, not it.
    assert relevant_ranks(x, x, [np.array([1]), np.array([0]), np.array([0])])[0].tolist() == [1]
    with_own = relevant_ranks(x, x, [np.array([2])] * 3, leave_one_out=False)
    assert [r.tolist() for r in with_own] == [[3], [3], [1]]


def random_case(seed, rows=60, dim=5, classes=6):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    queries = rng.normal(size=(rows, dim))
    return queries, queries + 0.3 * rng.normal(size=(rows, dim)), labels


@pytest.mark.parametrize("seed", range(3))
def test_mean_ap_is_scikit_learns_average_precision(seed):
    queries, gallery, labels = random_case(seed)
    q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    g = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    values = []
    for i in range(len(q)):
        others = np.arange(len(g)) != i
        wanted = labels[others] == labels[i]
        if wanted.any():
            values.append(average_precision_score(wanted, (g @ q[i])[others]))
    ranks = relevant_ranks(queries, gallery, same_class(labels))
    assert mean_ap(ranks) == pytest.approx(100 * np.mean(values), rel=1e-6)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_cmc_counts_queries_with_a_hit_among_the_first_k(k):
    queries, gallery, labels = random_case(7)
    q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    g = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    hits = []
    for i in range(len(q)):
        order = [j for j in np.argsort(-(g @ q[i])) if j != i]
        if any(labels[j] == labels[i] for j in order):
            hits.append(any(labels[j] == labels[i] for j in order[:k]))
    ranks = relevant_ranks(queries, gallery, same_class(labels))
    assert cmc(ranks, k) == pytest.approx(100 * np.mean(hits))


def test_queries_with_nothing_to_find_do_not_count():
    nothing = np.empty(0, dtype=np.int64)
    assert cmc([np.array([1]), nothing], 1) == 100.0
    assert mean_ap([np.array([2]), nothing]) == 50.0
    assert math.isnan(cmc([nothing], 1))
    assert math.isnan(mean_ap([nothing]))


def test_chunks_change_nothing():
    queries, gallery, labels = random_case(3)
    relevant = same_class(labels)
    whole = relevant_ranks(queries, gallery, relevant)
    for chunk in (1, 7, 60, 1000):
        parts = relevant_ranks(queries, gallery, relevant, chunk=chunk)
        assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.booleans())
def test_same_class_is_everyone_of_the_class(labels, leave_one_out):
    found = same_class(np.array(labels), leave_one_out=leave_one_out)
    for i, mine in enumerate(found):
        expected = [
            j
            for j, label in enumerate(labels)
            if label == labels[i] and not (leave_one_out and i == j)
        ]
        assert sorted(mine.tolist()) == expected


@pytest.mark.parametrize("k", [1, 4, 100])
def test_neighbours_are_the_nearest_others_by_cosine(k):
    x = np.random.default_rng(0).normal(size=(30, 4))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    found = neighbours(x, k=k, chunk=7)
    for i, mine in enumerate(found):
        order = [j for j in np.argsort(-(unit @ unit[i])) if j != i]
        assert sorted(mine.tolist()) == sorted(order[:k])


def test_scale_does_not_matter():
    queries, gallery, labels = random_case(5)
    relevant = same_class(labels)
    lengths = np.random.default_rng(0).uniform(0.1, 9, size=(len(gallery), 1))
    plain = relevant_ranks(queries, gallery, relevant)
    scaled = relevant_ranks(3 * queries, lengths * gallery, relevant)
    assert all(np.array_equal(a, b) for a, b in zip(plain, scaled, strict=True))


def test_a_zero_row_stays_zero():
    assert np.array_equal(unit_rows(np.zeros((1, 3))), np.zeros((1, 3)))


def test_metrics_by_name():
    ranks = [np.array([1, 4]), np.array([3])]
    assert score("cmc@1", ranks) == cmc(ranks, 1) == 50.0
    assert score("cmc@3", ranks) == cmc(ranks, 3) == 100.0
    assert score("mAP", ranks) == mean_ap(ranks)


@pytest.mark.parametrize("name", ["cmc", "cmc@0", "cmc@-1", "cmc@1.5", "map", "ndcg@10", ""])
def test_a_metric_that_does_not_exist_is_refused(name):
    with pytest.raises(BadInput, match=r"there is no metric named .* → use mAP or cmc@k"):
        check_metric(name)
