"""Both models on the query as cases of the table: what they score, and what they make it say."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.asking import BLEND
from crossfade.compatibility import Held, evaluate
from crossfade.pairs import Pairs
from crossfade.search import Question, Rows, Sample, Scores, joined


def mean_reciprocal(scene, scores) -> float:
    out = []
    for i, row in enumerate(scores):
        order = [j for j in np.argsort(-row, kind="stable") if j != i]
        found = np.flatnonzero(scene.labels[order] == scene.labels[i])
        out.append(1 / (1 + found[0]))
    return 100 * float(np.mean(out))


@pytest.mark.parametrize(("d", "n"), [(6, 8), (8, 6), (7, 7)])
@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_both_is_scored_as_the_searcher_scores(scene, d, n, distance):
    made = scene(rows=160, d=d, n=n, noise=1.0)
    found = evaluate(
        made.upgrade, made.held, metrics=["mrr@1000"], distance=distance, resamples=100
    )
    old, mapped = made.upgrade.as_stored(made.old), made.upgrade.backward(made.new)
    on_old = made.upgrade.query_for_old(made.new)
    sample = Sample(old, mapped, mapped)
    no, every = np.zeros(len(old), bool), np.ones(len(old), bool)
    for case, filled in (("both/old", no), ("both/new", every)):
        rows = Rows(old, mapped, no, filled)
        scores = np.array(
            [
                joined(question, Scores.of(question, rows, distance), sample, distance)
                for question in (Question(old[i], mapped[i], on_old[i]) for i in range(len(old)))
            ]
        )
        expected = mean_reciprocal(made, scores)
        assert found.means()[case]["mrr@1000"] == pytest.approx(expected, abs=0.2)


def test_blend_is_one_vector_on_the_old_ones(scene):
    made = scene(rows=160, d=6, n=8, noise=1.0)
    found = evaluate(made.upgrade, made.held, metrics=["mrr@1000"], resamples=100)

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    queries = BLEND * unit(made.upgrade.backward(made.new)[:, :6]) + (1 - BLEND) * unit(made.old)
    expected = mean_reciprocal(made, unit(queries) @ unit(made.old).T)
    assert found.means()["blend/old"]["mrr@1000"] == pytest.approx(expected, abs=0.01)


@pytest.fixture(scope="module")
def lookups():
    """Items without classes, seen by two models that share little, and queries for one each."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(1500, 24))
    asked = meaning[900:] + 0.5 * rng.normal(size=(600, 24))

    def model(x, seed, noise):
        local = np.random.default_rng(seed)
        seen = np.tanh(x @ local.normal(size=(24, 40)))
        return (seen + noise * np.random.default_rng(seed + 9).normal(size=seen.shape)).astype("f4")

    old, new = model(meaning, 1, 0.4), model(meaning, 2, 0.3)
    upgrade = Upgrade(solver="closed_form").fit(old[:900], new[:900])
    pairs = Pairs.from_arrays(old[900:], new[900:])
    queries = Pairs.from_arrays(model(asked, 1, 0.4), model(asked, 2, 0.3))
    qrels = np.stack([np.arange(600)] * 2 + [np.ones(600, int)], axis=1)
    return upgrade, Held.of(pairs, queries, qrels=qrels)


def test_where_the_new_model_alone_falls_behind_both_is_named(lookups):
    upgrade, held = lookups
    found = evaluate(upgrade, held, resamples=300)
    means = {case: values["ndcg@10"] for case, values in found.means().items()}
    assert found.verdicts["B(new)/old"].word == "not compatible"
    assert found.verdicts["both/old"].word != "not compatible"
    assert found.asking == "both"
    assert means["both/old"] > means["B(new)/old"] + 10
    assert means["both/new"] > max(means["old/old"], means["new/new"])


def test_a_verdict_of_both_can_fail(lookups):
    _, held = lookups
    rng = np.random.default_rng(3)
    # Maps that know nothing: B's voice is noise, and says so.
    blind = Upgrade(solver="closed_form").fit(
        rng.normal(size=(900, 40)), rng.normal(size=(900, 40)), force=True
    )
    found = evaluate(blind, held, resamples=300)
    assert found.verdicts["both/old"].word == "not compatible"
    assert found.asking == "old"


def test_where_the_new_model_alone_does_it_is_enough():
    rng = np.random.default_rng(0)
    labels = np.arange(1200) % 6
    new = np.eye(6)[labels] + 0.2 * rng.normal(size=(1200, 6))
    old = new + 0.4 * rng.normal(size=(1200, 6))
    upgrade = Upgrade(solver="closed_form").fit(old[:600], new[:600], labels[:600])
    held = Held.of(Pairs.from_arrays(old[600:], new[600:], labels[600:]))
    found = evaluate(upgrade, held, resamples=200)
    assert found.verdicts["B(new)/old"].word == "compatible"
    assert found.asking == "new"
