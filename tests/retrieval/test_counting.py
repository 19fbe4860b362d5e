"""Counts in every way, against comparisons of every score with every other."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.retrieval import SameClass, counting, numpy_engine, relevant_ranks
from crossfade.retrieval.compiled_counting import count_below as compiled
from crossfade.retrieval.numpy_engine import NumpyEngine

LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture(params=["one by one", "by slices", "by sorting", "by either", "compiled"])
def count(request, monkeypatch):
    """Each way, made to take every row it is given."""
    if request.param == "compiled":
        return compiled
    if request.param in ("by slices", "by sorting"):
        way = getattr(counting, "_" + request.param.replace(" ", "_"))
        monkeypatch.setattr(counting, "WAYS", (way,))
    monkeypatch.setattr(counting, "FEW", 10**9 if request.param == "one by one" else -1)
    return counting.count_below


def brute(scores, asked, bounds):
    out = []
    for row, (begin, end) in enumerate(pairwise(bounds)):
        out += [int((scores[row] < value).sum()) for value in asked[begin:end]]
    return out


def counted(count, scores, columns):
    """Counts for the scores of these columns of each row, and what brute force makes of them."""
    asked = [np.sort(row[chosen]) for row, chosen in zip(scores, columns, strict=True)]
    bounds = np.cumsum([0] + [len(some) for some in asked])
    flat = np.concatenate(asked).astype(np.float32)
    below = np.full(len(flat), -1)
    count(scores, flat, bounds, below)
    return below.tolist(), brute(scores, flat, bounds)


numbers = st.floats(-LARGEST, LARGEST, width=32)
kinds = st.sampled_from(
    [
        st.sampled_from([0.0, -0.0, 1.0]),
        st.integers(-4, 4).map(float),
        st.floats(-1, 1, width=32),
        # Some at an end of float32, most of them together at the middle.
        st.one_of(st.sampled_from([-LARGEST, LARGEST, 1e-45, -1e-45]), st.integers(0, 2)),
        numbers,
    ]
)


@st.composite
def rows(draw):
    n, m = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    kind = draw(kinds)
    cells = draw(st.lists(kind, min_size=n * m, max_size=n * m))
    scores = np.array(cells, np.float32).reshape(m, n)
    share = draw(st.sampled_from([0, 1, n // 2, n]))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    columns = [rng.permutation(n)[: rng.integers(0, share + 1)] for _ in range(m)]
    return scores, columns


@pytest.mark.parametrize("tile", [1 << 16, 7])
def test_counts_are_those_of_plain_comparisons(count, tile, monkeypatch):
    monkeypatch.setattr(counting, "_TILE", tile)

    @given(rows())
    def holds(drawn):
        scores, columns = drawn
        found, expected = counted(count, scores, columns)
        assert found == expected

    holds()


@pytest.mark.parametrize("relevant", [0, 1, 17, 3000, 6000])
@pytest.mark.parametrize("ties", [False, True])
def test_long_rows_are_counted_like_short_ones(count, relevant, ties):
    rng = np.random.default_rng(relevant)
    scores = rng.standard_normal((3, 6000)).astype(np.float32)
    if ties:
        scores = np.round(scores * 8) / np.float32(8)
    scores[0, 5] = -np.inf
    columns = [np.setdiff1d(rng.permutation(6000)[:relevant], [5]) for _ in range(3)]
    columns[1] = columns[1][:0]
    asked = [np.sort(row[chosen]) for row, chosen in zip(scores, columns, strict=True)]
    bounds = np.cumsum([0] + [len(some) for some in asked])
    flat = np.concatenate(asked).astype(np.float32)
    below = np.full(len(flat), -1)
    count(scores, flat, bounds, below)
    expected = [
        place
        for row, some in zip(scores, asked, strict=True)
        for place in np.sort(row).searchsorted(some)
    ]
    assert below.tolist() == expected


def test_the_way_that_is_faster_here_goes_on(monkeypatch):
    called = {"slow": 0, "quick": 0}

    def slow(*given):
        called["slow"] += 1
        time.sleep(0.1)
        counting._by_slices(*given)

    def quick(*given):
        called["quick"] += 1
        counting._by_sorting(*given)

    monkeypatch.setattr(counting, "WAYS", (slow, quick))
    monkeypatch.setattr(counting, "FEW", -1)
    monkeypatch.setattr(counting, "_TILE", 16)
    scores = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    found, expected = counted(counting.count_below, scores, [np.arange(0, 16, 3)] * 100)
    assert found == expected
    assert called == {"slow": counting._TRIES, "quick": 100 - counting._TRIES}


def test_a_large_table_is_counted_by_numba_and_a_small_one_is_not(monkeypatch):
    assert numpy_engine.counter(1 << 26) is compiled
    assert numpy_engine.counter((1 << 26) - 1) is counting.count_below
    monkeypatch.setattr(numpy_engine, "find_spec", lambda _: None)
    assert numpy_engine.counter(1 << 26) is counting.count_below


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("classes", [1, 3, 200])
def test_ranks_with_numba_and_without_are_the_same(random_case, dtype, distance, classes):
    queries, gallery, labels = random_case(8, rows=300, dim=3, classes=classes)
    # Whole numbers: many items score the same.
    queries, gallery = np.round(queries * 2).astype(dtype), np.round(gallery * 2).astype(dtype)
    relevance = SameClass.among(labels)
    block = relevance.block(0, 300)
    found = []
    for way in (counting.count_below, compiled):
        engine = NumpyEngine(queries, gallery, relevance.own, distance)
        engine.count_below = way
        found.append(engine.count(0, 300, block))
    assert np.array_equal(found[0].at_least, found[1].at_least)
    assert np.array_equal(found[0].scores, found[1].scores)
    ranked = next(relevant_ranks(queries, gallery, relevance, distance=distance))
    assert len(ranked.ranks) == len(found[0].at_least)


def test_an_own_item_beyond_float32_is_nobodys_score():
    x = np.array([[3e19, 0], [1, 0], [1, 1]], np.float32)
    relevance = SameClass.among(np.array([0, 0, 0]))
    ranked = next(relevant_ranks(x, x, relevance, distance="dot"))
    assert ranked.ranks.tolist() == [1, 2] * 3
