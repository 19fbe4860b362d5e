"""Every metric against trec_eval, scikit-learn and a brute-force loop."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from crossfade.errors import BadInput
from crossfade.retrieval import (
    Measured,
    SameClass,
    check_metric,
    from_qrels,
    measure,
    neighbours,
)

METRICS = ("cmc@1", "cmc@3", "mAP", "recall@2", "precision@3", "ndcg@2", "ndcg@100", "mrr@2")


def by_loop(name, order, grades):
    """One query's value, from its gallery in order."""
    if not grades:
        return math.nan
    kind, _, k = name.partition("@")
    hits = [j in grades for j in order]
    top = hits[: int(k)] if k else hits
    if kind == "cmc":
        return float(any(top))
    if kind == "recall":
        return sum(top) / len(grades)
    if kind == "precision":
        return sum(top) / int(k)
    if kind == "mrr":
        return 1 / (top.index(True) + 1) if any(top) else 0.0
    if kind == "mAP":
        return sum(sum(hits[:i]) / i for i, hit in enumerate(hits, 1) if hit) / len(grades)

    def dcg(values):
        return sum(v / math.log2(i + 1) for i, v in enumerate(values[: int(k)], 1))

    return dcg([grades.get(j, 0) for j in order]) / dcg(sorted(grades.values(), reverse=True))


@given(data=st.data())
def test_every_metric_is_its_loop_with_ties_duplicates_and_nothing_to_find(
    data, searches, brute, qrels
):
    q, g, grades, own = data.draw(searches)
    relevance = from_qrels(qrels(grades), len(q), len(g), own=own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure(q, g, relevance, METRICS, chunk=3)
    for name in METRICS:
        expected = [
            by_loop(name, brute(q[i], g, grades[i], own[i]), grades[i]) for i in range(len(q))
        ]
        assert np.allclose(found.values[name], expected, rtol=0, atol=1e-9, equal_nan=True)
    nothing = sum(not row for row in grades)
    assert (found.skipped, found.queries) == (nothing, len(q) - nothing)


@given(data=st.data(), classes=st.integers(1, 4))
def test_labels_are_judgements_of_grade_one(data, classes, searches, qrels):
    q, g, _, own = data.draw(searches)
    label = st.integers(-1, classes)
    mine = np.array(data.draw(st.lists(label, min_size=len(q), max_size=len(q))))
    theirs = np.array(data.draw(st.lists(label, min_size=len(g), max_size=len(g))))
    judged = [
        {j: 1 for j in range(len(g)) if mine[i] == theirs[j] != -1 and j != own[i]}
        for i in range(len(q))
    ]
    names = ("cmc@1", "mAP", "ndcg@1", "recall@1")
    by_label = measure(q, g, SameClass(mine, theirs, own), names)
    by_list = measure(q, g, from_qrels(qrels(judged), len(q), len(g), own=own), names)
    for name in names:
        assert np.array_equal(by_label.values[name], by_list.values[name], equal_nan=True)


@pytest.mark.parametrize("seed", range(3))
def test_every_metric_is_trec_evals(seed):
    rng = np.random.default_rng(seed)
    q, g = rng.normal(size=(30, 8)), rng.normal(size=(200, 8))
    pairs = rng.choice(30 * 200, size=300, replace=False)
    table = np.stack([pairs // 200, pairs % 200, rng.integers(0, 4, size=300)], axis=1)
    names = {
        "mAP": "map",
        "cmc@5": "success_5",
        "recall@10": "recall_10",
        "precision@10": "P_10",
        "ndcg@10": "ndcg_cut_10",
        "mrr@200": "recip_rank",
    }
    found = measure(q, g, from_qrels(table, 30, 200), list(names))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, g)]
    scores = unit[0] @ unit[1].T
    judged = {f"q{i}": {} for i in range(30)}
    for i, j, grade in table.tolist():
        judged[f"q{i}"][f"d{j}"] = grade
    run = {f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row)} for i, row in enumerate(scores)}
    theirs = pytrec_eval.RelevanceEvaluator(judged, set(names.values())).evaluate(run)
    for ours, name in names.items():
        # trec_eval gives 0 to a query with nothing relevant; here it has no value.
        expected = [
            theirs[q_][name] if max(judged[q_].values(), default=0) > 0 else math.nan
            for q_ in judged
        ]
        assert np.allclose(found.values[ours], expected, rtol=0, atol=1e-6, equal_nan=True)
        assert found.mean(ours) == pytest.approx(100 * np.nanmean(expected), abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_map_and_ndcg_are_scikit_learns(seed, random_case):
    queries, gallery, labels = random_case(seed)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, gallery)]
    precision, gain = [], []
    for i in range(len(labels)):
        others = np.arange(len(labels)) != i
        wanted, scores = labels[others] == labels[i], (unit[1] @ unit[0][i])[others]
        precision.append(average_precision_score(wanted, scores))
        gain.append(ndcg_score(wanted[None].astype(float), scores[None], k=10))
    found = measure(queries, gallery, SameClass.among(labels), ["mAP", "ndcg@10"])
    assert np.allclose(found.values["mAP"], precision, atol=1e-6)
    assert np.allclose(found.values["ndcg@10"], gain, atol=1e-6)


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_agreement_is_the_overlap_with_the_other_rankings_first_k(distance):
    rng = np.random.default_rng(0)
    new, other = rng.normal(size=(50, 6)), rng.normal(size=(50, 4))
    own = np.arange(50)
    truth = neighbours(new, new, k=10, own=own, distance=distance)
    found = measure(other, other, truth, ["agreement@10", "agreement@3"], distance=distance)

    def top(x, i, k):
        if distance == "l2":
            scores = -np.linalg.norm(x - x[i], axis=1)
        else:
            unit = x / np.linalg.norm(x, axis=1, keepdims=True) if distance == "cosine" else x
            scores = unit @ unit[i]
        return set([j for j in np.argsort(-scores).tolist() if j != i][:k])

    for k in (10, 3):
        expected = [len(top(new, i, k) & top(other, i, k)) / k for i in range(50)]
        assert np.allclose(found.values[f"agreement@{k}"], expected)
    itself = measure(new, new, truth, ["agreement@10", "agreement@3"], distance=distance)
    assert itself.means() == {"agreement@10": 100.0, "agreement@3": 100.0}


def test_agreement_needs_a_models_own_ranking():
    x = np.eye(3)
    with pytest.raises(BadInput, match="agreement is with a model's own neighbours"):
        measure(x, x, SameClass.among(np.zeros(3)), ["agreement@1"])


@pytest.mark.parametrize("k", [1, 4, 29, 100])
def test_neighbours_are_the_nearest_others_in_order(k):
    x = np.random.default_rng(0).normal(size=(30, 4))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    block = neighbours(x, x, k=k, own=np.arange(30)).block(0, 30)
    for i in range(30):
        order = [j for j in np.argsort(-(unit @ unit[i])) if j != i][:k]
        place = slice(block.starts[i], block.starts[i] + block.counts[i])
        by_grade = np.argsort(-block.grades[place])
        assert block.items[place][by_grade].tolist() == order


def test_of_equal_neighbours_the_lower_index_is_the_nearer():
    x = np.ones((5, 2))
    block = neighbours(x, x, k=2, own=np.arange(5)).block(0, 5)
    assert block.items.tolist() == [1, 2, 0, 2, 0, 1, 0, 1, 0, 1]


def test_values_by_class():
    values = {"cmc@1": np.array([1.0, 0.0, np.nan, 1.0])}
    assert Measured(values).by_class(np.array(["a", "a", "b", "c"])) == {
        "a": {"cmc@1": 50.0},
        "c": {"cmc@1": 100.0},
    }
    assert math.isnan(Measured({"mAP": np.array([np.nan])}).mean("mAP"))


def test_a_k_beyond_the_gallery_is_warned_of():
    x = np.eye(3)
    with pytest.warns(UserWarning, match="recall@3 looks at 3 items, and the gallery has 2"):
        found = measure(x, x, SameClass.among(np.array([0, 0, 1])), ["recall@3"])
    assert found.means() == {"recall@3": 100.0}


@pytest.mark.parametrize("name", ["cmc", "cmc@0", "cmc@-1", "cmc@1.5", "map", "mAP@5", "f1@3", ""])
def test_a_metric_that_does_not_exist_is_refused(name):
    with pytest.raises(BadInput, match=r"there is no metric named .* → use mAP, or one of cmc, "):
        check_metric(name)


def test_no_metric_at_all_is_refused():
    with pytest.raises(BadInput, match="no metric was named"):
        measure(np.eye(2), np.eye(2), SameClass.among(np.zeros(2)), [])
