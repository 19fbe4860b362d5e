"""Three models in a row."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.compatibility import Chain, evaluate_chain
from crossfade.errors import BadInput
from crossfade.retrieval import SameClass, measure


@pytest.fixture(scope="module", params=[(6, 8, 10), (10, 8, 6), (7, 7, 7)])
def generations(request):
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 6
    items = rng.normal(size=(6, 5))[labels] + 0.5 * rng.normal(size=(300, 5))
    vectors = [
        (items @ rng.normal(size=(5, dim)) + noise * rng.normal(size=(300, dim))).astype(np.float32)
        for dim, noise in zip(request.param, (1.5, 0.8, 0.2), strict=True)
    ]
    names = ("a", "b", "c")
    steps = [
        Upgrade(
            solver="closed_form",
            old_model=names[i],
            new_model=names[i + 1],
            rotate_old=request.param[i] > request.param[i + 1],
        ).fit(vectors[i][:150], vectors[i + 1][:150], labels[:150])
        for i in range(2)
    ]
    return steps, [x[150:] for x in vectors], labels[150:]


def test_the_matrix_is_lower_triangular_with_each_models_own_on_the_diagonal(generations):
    steps, vectors, labels = generations
    relevance = SameClass.among(labels)
    chain = evaluate_chain(steps, vectors, relevance)
    assert chain.models == ("a", "b", "c")
    for name, matrix in chain.matrices.items():
        assert [len(row) for row in matrix] == [1, 2, 3]
        for t, x in enumerate(vectors):
            assert matrix[t][t] == measure(x, x, relevance, [name]).mean(name)


def test_a_step_down_is_the_case_b_new_old(generations):
    steps, vectors, labels = generations
    relevance = SameClass.among(labels)
    matrix = evaluate_chain(steps, vectors, relevance, ["mAP"]).matrices["mAP"]
    b, old = steps[1].backward(vectors[2]), vectors[1]
    old = old if steps[1].axes_ is None else old @ steps[1].axes_.T
    dim = min(b.shape[1], old.shape[1])
    expected = measure(b[:, :dim], old[:, :dim], relevance, ["mAP"]).mean("mAP")
    assert matrix[2][1] == pytest.approx(expected, abs=1e-3)


def test_two_steps_down_still_find_their_class(generations):
    steps, vectors, labels = generations
    matrix = evaluate_chain(steps, vectors, SameClass.among(labels), ["mAP"]).matrices["mAP"]
    by_chance = 100 / 6
    assert matrix[2][0] > 2 * by_chance


def test_average_compatibility_is_the_share_of_entries_that_beat_their_column():
    matrix = ((50.0,), (60.0, 70.0), (40.0, 80.0, 90.0))
    chain = Chain(("a", "b", "c"), {"mAP": matrix})
    assert chain.average_compatibility("mAP") == pytest.approx(2 / 3)
    assert chain.record()["metrics"]["mAP"]["matrix"] == [[50.0], [60.0, 70.0], [40.0, 80.0, 90.0]]


def test_models_without_names_are_numbered(made):
    old, new, labels = made(rows=60)
    step = Upgrade(solver="closed_form").fit(old, new, labels)
    assert evaluate_chain([step], [old, new], SameClass.among(labels)).models == (
        "model 1",
        "model 2",
    )


def test_models_that_do_not_fit_their_upgrades_are_refused(generations):
    steps, vectors, labels = generations
    relevance = SameClass.among(labels)
    with pytest.raises(BadInput, match="2 upgrades join 3 models, and vectors of 2 were given"):
        evaluate_chain(steps, vectors[:2], relevance)
    wrong = [vectors[0], vectors[1], vectors[2][:, :3]]
    with pytest.raises(BadInput, match="vectors have dimension 3"):
        evaluate_chain(steps, wrong, relevance)
