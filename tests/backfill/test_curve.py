"""Curves against evaluating the half-filled gallery anew at every point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.backfill import curve, curves
from crossfade.errors import BadInput
from crossfade.retrieval import SameClass, from_qrels, measure

# Whole coordinates of length 1 or 2: scores are exact, ties and all.
GRID = np.array(list(np.ndindex(3, 3, 3, 3))) - 1.0
EXACT = GRID[np.isin((GRID**2).sum(axis=1), (1, 4))]
METRICS = ("cmc@1", "mAP", "recall@2", "precision@1", "ndcg@2", "mrr@2")


@pytest.fixture(scope="module", params=["cpu", "torch"])
def device(request):
    """`torch` is the way of GPUs, here on torch's own CPU device."""
    if request.param == "cpu":
        yield "cpu"
        return
    from crossfade.backfill import torch_walk

    kept, step = curve._walk, torch_walk._STEP
    curve._walk = lambda before, after, _: torch_walk.TorchWalk(before, after, "cpu")
    # Few places to a step, so that chunks are taken apart as large ones are.
    torch_walk._STEP = 300
    yield "torch"
    curve._walk, torch_walk._STEP = kept, step


@st.composite
def fillings(draw):
    queries, gallery = draw(st.integers(1, 6)), draw(st.integers(3, 12))
    pick = st.integers(0, len(EXACT) - 1)

    def vectors(rows):
        return EXACT[draw(st.lists(pick, min_size=rows, max_size=rows))]

    grades = draw(
        st.lists(
            st.lists(st.integers(0, 2), min_size=gallery, max_size=gallery),
            min_size=queries,
            max_size=queries,
        )
    )
    qrels = [(i, j, g) for i, row in enumerate(grades) for j, g in enumerate(row) if g]
    own = draw(st.lists(st.integers(-1, gallery - 1), min_size=queries, max_size=queries))
    order = np.array(draw(st.permutations(range(gallery))))
    relevance = from_qrels(
        np.array(qrels, dtype=int).reshape(-1, 3), queries, gallery, own=np.array(own)
    )
    return vectors(queries), vectors(gallery), vectors(gallery), order, relevance


def filled(before, after, order, share):
    """The gallery with the first ⌊share · items⌋ of the order backfilled."""
    first = order < int(np.floor(share * len(order) + 1e-9))
    return np.where(first[:, None], after, before)


@given(case=fillings(), points=st.integers(2, 9), distance=st.sampled_from(["cosine", "dot", "l2"]))
def test_every_point_is_an_evaluation_of_the_gallery_as_it_then_is(device, case, points, distance):
    q, before, after, order, relevance = case
    found = curves(
        q,
        before,
        after,
        {"it": order},
        relevance,
        METRICS,
        points=points,
        distance=distance,
        device=device,
    )["it"]
    assert np.allclose(found.shares, np.linspace(0, 1, points))
    for t, share in enumerate(found.shares):
        gallery = filled(before, after, order, share)
        expected = measure(q, gallery, relevance, METRICS[:2], distance=distance)
        more = [m for m in METRICS[2:] if int(m.split("@")[1]) <= len(before) - 1]
        expected.values.update(measure(q, gallery, relevance, more, distance=distance).values)
        for name in (*METRICS[:2], *more):
            assert np.array_equal(found.values[name][t], expected.values[name], equal_nan=True), (
                name,
                share,
            )


def made(seed=0, rows=150, dim=6, classes=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    centres = rng.normal(size=(classes, dim))

    def seen(noise):
        return centres[labels] + noise * rng.normal(size=(rows, dim))

    return seen(0.6), seen(1.5), seen(0.6), rng.permutation(rows), SameClass.among(labels)


@pytest.mark.parametrize("seed", range(3))
def test_on_vectors_of_no_special_kind(seed):
    q, before, after, order, relevance = made(seed)
    found = curves(q, before, after, {"it": order}, relevance)["it"]
    assert len(found.shares) == 101
    for t in range(0, 101, 10):
        expected = measure(q, filled(before, after, order, t / 100), relevance, ["cmc@1", "mAP"])
        for name in ("cmc@1", "mAP"):
            assert np.allclose(found.values[name][t], expected.values[name])
            assert found.means(name)[t] == pytest.approx(expected.mean(name))


def test_the_area_is_the_trapezoid_of_the_curve_and_the_mean_of_the_queries_areas():
    q, before, after, order, relevance = made(4)
    found = curves(q, before, after, {"it": order}, relevance, points=11)["it"]
    means = found.means("mAP")
    by_hand = sum((means[i] + means[i + 1]) / 2 * 0.1 for i in range(10))
    assert found.area("mAP") == pytest.approx(by_hand)
    assert found.areas("mAP").mean() == pytest.approx(by_hand)


def test_several_orders_meet_at_both_ends():
    q, before, after, order, relevance = made(5)
    both = curves(q, before, after, {"a": order, "b": order[::-1].copy()}, relevance, points=5)
    for end in (0, -1):
        assert both["a"].means("mAP")[end] == both["b"].means("mAP")[end]
    assert both["a"].means("mAP")[2] != both["b"].means("mAP")[2]


def test_small_chunks_and_threads_change_nothing(monkeypatch):
    q, before, after, order, relevance = made(6)
    whole = curves(q, before, after, {"it": order}, relevance, points=7)["it"]
    monkeypatch.setattr(curve, "_SCORE_BYTES", 8 * 150 * 4)
    monkeypatch.setattr(curve, "_RANK_BYTES", 20_000)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    seen = []
    parts = curves(
        q, before, after, {"it": order}, relevance, points=7, progress=lambda *x: seen.append(x)
    )["it"]
    assert len(seen) > 20
    assert seen[-1] == (150, 150)
    assert np.array_equal(whole.values["mAP"], parts.values["mAP"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"orders": {"it": np.zeros(150, int)}}, "does not name every gallery item once"),
        ({"orders": {"it": np.arange(149)}}, "the order has 149 items, the gallery 150"),
        ({"orders": {}}, "a curve needs an order"),
        ({"metrics": []}, "a curve needs a metric"),
        ({"metrics": ["agreement@5"]}, "agreement has no curve"),
        ({"points": 1}, "a curve of 1 points → use at least 2"),
        ({"after": np.ones((150, 5))}, "queries have dimension 6 and the gallery 5"),
        ({"after": np.ones((149, 6))}, "there are 149 gallery vectors and relevance for 150"),
    ],
)
def test_what_makes_no_curve_is_refused(change, message):
    q, before, after, order, relevance = made()
    given = {
        "queries": q,
        "before": before,
        "after": after,
        "orders": {"it": order},
        "relevance": relevance,
    }
    with pytest.raises(BadInput, match=message):
        curves(**given | change)


def test_scores_beyond_float32_are_refused():
    q, before, after, order, relevance = made()
    with pytest.raises(BadInput, match="row 0 has a score that is not a finite number"):
        curves(q * 1e30, before * 1e30, after, {"it": order}, relevance, distance="dot")
