"""Definition 3.1 against a loop over all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.compatibility import definition
from crossfade.compatibility.definition import Share, check_definition, sample_definition
from crossfade.retrieval import SameClass


def distances(q, g, distance):
    if distance == "l2":
        return np.linalg.norm(q[:, None] - g[None], axis=2)
    if distance == "cosine":
        q, g = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, g))
    return -(q @ g.T)


def by_loop(case, old, relevance, distance):
    new, before = distances(*case, distance), distances(*old, distance)
    counts = {"same_class": [0, 0], "different_class": [0, 0]}
    for i, mine in enumerate(relevance.labels):
        for j, theirs in enumerate(relevance.gallery_labels):
            if mine == -1 or theirs == -1 or (relevance.own is not None and relevance.own[i] == j):
                continue
            kind = "same_class" if mine == theirs else "different_class"
            good = new[i, j] <= before[i, j] if mine == theirs else new[i, j] >= before[i, j]
            counts[kind][0] += good
            counts[kind][1] += 1
    return counts


def made(seed=0, queries=40, gallery=30):
    rng = np.random.default_rng(seed)

    def x(rows, dim):
        return rng.normal(size=(rows, dim)).astype(np.float32)

    case, old = (x(queries, 5), x(gallery, 5)), (x(queries, 4), x(gallery, 4))
    own = rng.integers(-1, gallery, size=queries)
    labels = rng.integers(-1, 4, size=queries), rng.integers(-1, 4, size=gallery)
    return case, old, SameClass(*labels, own)


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("chunk", [1 << 8, 1 << 25])
def test_the_shares_are_those_of_all_pairs(distance, chunk, monkeypatch):
    monkeypatch.setattr(definition, "_CHUNK_BYTES", chunk)
    case, old, relevance = made()
    expected = by_loop(case, old, relevance, distance)
    for kind, share in check_definition(case, old, relevance, distance).items():
        assert [share.holds, share.pairs] == expected[kind]


def test_a_representation_satisfies_the_definition_with_itself():
    _, old, relevance = made(1)
    for share in check_definition(old, old, relevance).values():
        assert share.holds == share.pairs > 0


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_a_sample_is_near_the_whole_and_says_how_near(distance):
    case, old, relevance = made(2, queries=200, gallery=150)
    exact = check_definition(case, old, relevance, distance)
    sampled = sample_definition(case, old, relevance, distance, pairs=20_000, seed=3)
    for kind, share in sampled.items():
        low, high = share.interval()
        true = 100 * exact[kind].holds / exact[kind].pairs
        assert share.pairs == 20_000
        assert low - 0.5 < true < high + 0.5
        assert high - low < 1.5
        assert share.record()["ci95"] == (low, high)


def test_sampled_pairs_are_of_the_kind_asked_for_and_never_of_one_item():
    relevance = SameClass.among(np.array([0, 0, 0, 1, 1, -1]))
    rng = np.random.default_rng(0)
    i, j = definition._draw(relevance, 2000, True, rng)
    assert (relevance.labels[i] == relevance.labels[j]).all()
    assert (i != j).all()
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == 8
    i, j = definition._draw(relevance, 2000, False, rng)
    assert (relevance.labels[i] != relevance.labels[j]).all()
    assert 5 not in i
    assert 5 not in j
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == 12


def test_kinds_of_which_there_are_no_pairs():
    x = np.eye(3, dtype=np.float32)
    alone = SameClass.among(np.array([0, 1, 2]))
    found = check_definition((x, x), (x, x), alone)
    assert found["same_class"].record() == {"share": None, "pairs": 0}
    sampled = sample_definition((x, x), (x, x), alone, pairs=10)
    assert sampled["same_class"].record() == {"share": None, "pairs": 0, "ci95": (0.0, 100.0)}
    one = SameClass.among(np.array([0, 0, 0]))
    assert sample_definition((x, x), (x, x), one, pairs=10)["different_class"].pairs == 0


def test_wilsons_interval_is_scipys():
    from scipy.stats import binomtest

    for holds, pairs in ((0, 10), (7, 10), (500, 1000), (1000, 1000)):
        theirs = binomtest(holds, pairs).proportion_ci(method="wilson")
        ours = Share(holds, pairs, sampled=True).interval()
        assert ours == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=1e-4)
