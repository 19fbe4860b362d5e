"""Ranks against a gallery sorted in exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade import threads
from crossfade.distance import DISTANCES
from crossfade.errors import BadInput, BadRow
from crossfade.retrieval import SameClass, from_qrels, ranking, relevant_ranks
from crossfade.retrieval.numpy_engine import NumpyEngine
from crossfade.retrieval.ranking import unit_rows

ENGINES = ["cpu", "torch"]


@pytest.fixture(scope="module", params=ENGINES)
def device(request):
    """`torch` is the engine of GPUs, here on torch's own CPU device."""
    if request.param == "cpu":
        yield "cpu"
        return
    from crossfade.retrieval.torch_engine import TorchEngine

    kept = ranking._engine
    ranking._engine = lambda q, g, relevance, distance, _: TorchEngine(
        q, g, relevance.own, distance
    )
    yield "torch"
    ranking._engine = kept


def split(ranked):
    """The ranks and grades of each query, chunk after chunk."""
    out = []
    for part in ranked:
        for start, count in zip(part.starts, part.counts, strict=True):
            place = slice(start, start + count)
            out.append((part.ranks[place].tolist(), part.grades[place].tolist()))
    return out


@given(data=st.data(), chunk=st.integers(1, 5), distance=st.sampled_from(DISTANCES))
def test_ranks_are_those_of_the_gallery_in_its_pessimistic_order(
    data, chunk, distance, searches, brute, qrels, device
):
    q, g, grades, own = data.draw(searches)
    relevance = from_qrels(qrels(grades), len(q), len(g), own=own)
    found = split(relevant_ranks(q, g, relevance, distance=distance, chunk=chunk, device=device))
    for i, (ranks, ranked_grades) in enumerate(found):
        order = brute(q[i], g, grades[i], own[i], distance)
        expected = [(r, grades[i][j]) for r, j in enumerate(order, 1) if j in grades[i]]
        assert list(zip(ranks, ranked_grades, strict=True)) == expected


def test_a_gallery_of_one_and_the_same_vector_finds_nothing_early(device):
    same = np.ones((6, 4))
    labels = np.array([0, 0, 1, 1, 1, 2])
    ranked = next(relevant_ranks(same, same, SameClass.among(labels), device=device))
    assert ranked.counts.tolist() == [1, 1, 2, 2, 2, 0]
    assert ranked.ranks.tolist() == [5, 5, 4, 5, 4, 5, 4, 5]


def test_the_item_left_out_is_the_querys_own_and_not_its_twin(device):
    x = np.eye(3)[[0, 0, 1]]
    labels = np.array([0, 0, 1])
    ranked = next(relevant_ranks(x, x, SameClass.among(labels), device=device))
    assert ranked.ranks.tolist() == [1, 1]
    with_own = next(relevant_ranks(x, x, SameClass(labels, labels), device=device))
    assert with_own.ranks.tolist() == [1, 2, 1, 2, 1]


def test_chunks_change_nothing(random_case, device):
    queries, gallery, labels = random_case(3)
    relevance = SameClass.among(labels)
    whole = next(relevant_ranks(queries, gallery, relevance, device=device)).ranks
    for chunk in (1, 7, 60, 1000):
        parts = relevant_ranks(queries, gallery, relevance, chunk=chunk, device=device)
        assert np.array_equal(np.concatenate([part.ranks for part in parts]), whole)


def test_both_engines_agree_on_vectors_of_no_special_kind(random_case):
    from crossfade.retrieval.torch_engine import TorchEngine

    queries, gallery, labels = random_case(11, rows=400, dim=16, classes=9)
    relevance = SameClass.among(labels)
    block = relevance.block(0, 400)
    engines = (NumpyEngine, TorchEngine)
    ours, theirs = (e(queries, gallery, relevance.own).count(0, 400, block) for e in engines)
    assert np.array_equal(ours.at_least, theirs.at_least)


def test_as_many_threads_as_there_are_change_nothing(random_case, monkeypatch):
    queries, gallery, labels = random_case(4)
    relevance = SameClass.among(labels)
    alone = next(relevant_ranks(queries, gallery, relevance)).ranks
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads.cores() == 7
    assert np.array_equal(next(relevant_ranks(queries, gallery, relevance)).ranks, alone)


def test_scale_does_not_matter_to_cosine_and_a_shift_not_to_euclid(random_case):
    queries, gallery, labels = random_case(5)
    relevance = SameClass.among(labels)
    lengths = np.random.default_rng(0).uniform(0.1, 9, size=(len(gallery), 1))
    plain = next(relevant_ranks(queries, gallery, relevance)).ranks
    scaled = next(relevant_ranks(3 * queries, lengths * gallery, relevance)).ranks
    assert np.array_equal(plain, scaled)
    near = next(relevant_ranks(queries, gallery, relevance, distance="l2")).ranks
    moved = next(relevant_ranks(queries + 1, gallery + 1, relevance, distance="l2")).ranks
    assert np.array_equal(near, moved)


def test_a_zero_row_stays_zero_and_is_near_nothing():
    assert np.array_equal(unit_rows(np.zeros((1, 3))), np.zeros((1, 3)))
    x = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.1]])
    ranked = next(relevant_ranks(x, x, SameClass.among(np.array([0, 0, 1]))))
    assert ranked.ranks.tolist() == [2, 2]


def test_progress_counts_queries(random_case):
    queries, gallery, labels = random_case(1)
    seen = []
    relevance = SameClass.among(labels)
    list(relevant_ranks(queries, gallery, relevance, chunk=25, progress=lambda *x: seen.append(x)))
    assert seen == [(25, 60), (50, 60), (60, 60)]


@pytest.mark.parametrize(
    ("queries", "gallery", "message"),
    [
        (np.empty((0, 2)), np.ones((3, 2)), "there are no query vectors → give at least one"),
        (np.ones((3, 2)), np.empty((0, 2)), "there are no gallery vectors"),
        (np.ones((3, 2)), np.ones((3, 4)), "queries have dimension 2 and the gallery 4"),
        (np.ones((3, 2), int), np.ones((3, 2)), "query vectors are 2-dimensional int64"),
        (np.ones((2, 2)), np.ones((3, 2)), "there are 2 query vectors and relevance for 3"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), "query vectors: row 0 has a NaN"),
        (np.ones((3, 2)), np.full((3, 2), np.inf), "gallery vectors: row 0 has an infinite value"),
    ],
)
def test_vectors_that_cannot_be_ranked_are_refused(queries, gallery, message):
    relevance = SameClass(np.zeros(len(queries) or 3), np.zeros(len(gallery) or 3))
    if message.endswith("for 3"):
        relevance = SameClass(np.zeros(3), np.zeros(3))
    with pytest.raises(BadInput, match=message):
        next(relevant_ranks(queries, gallery, relevance))


def test_an_unknown_distance_is_refused():
    x = np.ones((3, 2))
    with pytest.raises(BadInput, match="no distance 'manhattan' → use one of cosine, dot, l2"):
        next(relevant_ranks(x, x, SameClass.among(np.zeros(3)), distance="manhattan"))


@pytest.mark.parametrize(
    ("query", "gallery"),
    [
        ([[1e30, 0], [1, 0]], [[1, 0], [1e30, 0]]),
        ([[1e30, 1e30], [1, 0]], [[1e30, -1e30], [1, 0]]),
        ([[-1e30, 0], [1, 0]], [[1, 0], [1e30, 0]]),
    ],
)
def test_scores_beyond_float32_are_refused_by_their_query(query, gallery, device):
    q, g = np.array(query, np.float32), np.array(gallery, np.float32)
    relevance = SameClass(np.array([0, 0]), np.array([0, 1]))
    with pytest.raises(BadRow, match=r"row 0 has a score that is not a finite number"):
        next(relevant_ranks(q, g, relevance, distance="dot", device=device))
