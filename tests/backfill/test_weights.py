"""What each voice counts: chosen where queries tell, left alone where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.compatibility.test_asked import lookups

from crossfade.asking import DEFAULT, Both, Weights
from crossfade.backfill.blend import Blend
from crossfade.backfill.choose import choose
from crossfade.backfill.curve import Curve
from crossfade.backfill.simulate import Candidate, Simulation, simulate
from crossfade.backfill.weights import Ruler
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval import Measured, from_qrels, measure
from crossfade.upgrade import Upgrade

__all__ = ["lookups"]
METRICS = ["ndcg@10"]
OTHERS = Weights(old_backward=0.5, lifted_backward=0.1, lifted_forward=0.6, filled_new=0.9)


def both_of(upgrade, held):
    return Both(
        upgrade.as_stored(held.query_old),
        upgrade.backward(held.query_new),
        upgrade.as_stored(held.gallery_old),
        upgrade.forward(held.gallery_old),
    )


@pytest.fixture(scope="module")
def blind():
    """Maps that know nothing of the two models."""
    rng = np.random.default_rng(3)
    return Upgrade(solver="closed_form").fit(*rng.normal(size=(2, 900, 40)), force=True)


def test_a_voice_that_knows_nothing_is_not_listened_to(lookups, blind):
    _, held = lookups
    found = simulate(
        blind, held, orders=["random"], blends=[1.0], metrics=METRICS, asking=["both"], points=5
    )
    learned = found.candidates[-1].weights
    assert (learned.old_backward, learned.lifted_backward, learned.lifted_forward) == (0, 0, 0)
    today = found.old.mean("ndcg@10")
    default, chosen = (c.curve.means("ndcg@10")[0] for c in found.candidates)
    assert default < today - 1
    assert chosen == pytest.approx(today, abs=1e-6)
    assert choose(found, METRICS).best.weights == learned


def test_a_model_that_is_far_better_is_listened_to_alone():
    rng = np.random.default_rng(0)
    new = rng.normal(size=(1200, 8)).astype("f4")
    old = (new @ rng.normal(size=(8, 8)) + 4 * rng.normal(size=(1200, 8))).astype("f4")
    asked = new[600:] + 0.3 * rng.normal(size=(600, 8)).astype("f4")
    upgrade = Upgrade(solver="closed_form").fit(old[:600], new[:600], force=True)
    pairs = Pairs.from_arrays(old[600:], new[600:])
    queries = Pairs.from_arrays(4 * rng.normal(size=(600, 8)).astype("f4"), asked)
    qrels = np.stack([np.arange(600)] * 2, axis=1)
    held = Held.of(pairs, queries, qrels=qrels)
    both = both_of(upgrade, held)
    mapped = upgrade.backward(held.gallery_new)
    found = Ruler(held.relevance, METRICS).of_both(both, mapped)
    assert found.filled_new == 1
    asked = both.as_filled(mapped, found)
    score = measure(asked.queries, asked.items, held.relevance, METRICS, distance="dot")
    alone = measure(both.backward, mapped, held.relevance, METRICS)
    # Each query in units of its own deviation: the same order.
    assert score.mean("ndcg@10") == pytest.approx(alone.mean("ndcg@10"), abs=0.01)


def test_a_handful_of_queries_changes_nothing(lookups, blind):
    _, held = lookups
    few = 6
    relevance = from_qrels(np.stack([np.arange(few)] * 2, axis=1), few, held.gallery)
    asked = replace(
        held, query_old=held.query_old[:few], query_new=held.query_new[:few], relevance=relevance
    )
    both = both_of(blind, asked)
    assert Ruler(relevance, METRICS).of_both(both, blind.backward(held.gallery_new)) == DEFAULT


def test_items_of_every_state_are_scored_by_their_own_weights(lookups):
    upgrade, held = lookups
    states = np.array(["old", "lifted", "filled"])[np.arange(held.gallery) % 3]
    found = simulate(
        upgrade, held, orders=["random"], blends=[1.0], metrics=METRICS, asking=["both"],
        points=3, start=states,
    )  # fmt: skip
    candidate = replace(found.candidates[0], weights=OTHERS)
    curve = found.again(candidate).values["ndcg@10"]
    q_old, q_new = upgrade.as_stored(held.query_old), upgrade.backward(held.query_new)
    old, lifted = upgrade.as_stored(held.gallery_old), upgrade.forward(held.gallery_old)
    new = upgrade.backward(held.gallery_new)

    def z(q, g):
        q = q / np.linalg.norm(q, axis=1, keepdims=True)
        g = g / np.linalg.norm(g, axis=1, keepdims=True)
        scores = q @ g.T
        return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)

    by_old, by_b, by_f, by_new = z(q_old, old), z(q_new, old), z(q_new, lifted), z(q_new, new)
    by_state = {
        "old": 0.5 * by_old + 0.5 * by_b,
        "lifted": 0.3 * by_old + 0.1 * by_b + 0.6 * by_f,
        "filled": 0.1 * by_old + 0.9 * by_new,
    }
    now = np.choose(np.arange(held.gallery) % 3, [by_state[s] for s in ("old", "lifted", "filled")])
    for point, scores in ((0, now), (2, by_state["filled"])):
        ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
        gains = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)
        assert np.mean(curve[point]) == pytest.approx(gains.mean(), abs=1e-3)


def test_a_weight_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"a weight of 1\.2"):
        Weights(lifted_backward=0.6, lifted_forward=0.6)
    with pytest.raises(ValueError, match=r"a weight of -0\.1"):
        Weights(filled_new=-0.1)


def without_old_queries(held):
    return replace(held, query_old=None)


def test_without_the_old_model_nothing_is_said_of_today(lookups):
    upgrade, held = lookups
    gone = without_old_queries(held)
    given = {"orders": ["random"], "blends": [1.0], "metrics": METRICS, "points": 11}
    found = simulate(upgrade, gone, **given)
    assert {c.asking for c in found.candidates} == {"new"}
    assert found.old is None
    choice = choose(found, METRICS)
    assert choice.lowest["ndcg@10"].against_today is None
    assert choice.alone["ndcg@10"].reaches is None
    assert "old/old" not in choice.qualities["ndcg@10"]
    whole = simulate(upgrade, held, **given, asking=["new"])
    curve = whole.candidates[0].curve.means("ndcg@10")
    np.testing.assert_allclose(found.candidates[0].curve.means("ndcg@10"), curve)
    # Told today's level, it says from which share on it is over.
    today = whole.old.mean("ndcg@10")
    told = choose(found, METRICS, today=today)
    assert told.alone["ndcg@10"].reaches == choose(whole, METRICS).alone["ndcg@10"].reaches
    assert told.lowest["ndcg@10"].against_today == pytest.approx(curve.min() - today, abs=0.01)
    with pytest.raises(BadInput, match="is measured on these queries"):
        choose(whole, METRICS, today=today)
    with pytest.raises(BadInput, match="several are optimized"):
        choose(found, ["ndcg@10", "mAP"], today=today)
    with pytest.raises(BadInput, match="only new ones can be asked"):
        simulate(upgrade, gone, **given, asking=["both"])


def test_weights_that_win_one_metric_at_the_cost_of_another_are_not_taken():
    shares = np.array([0, 0.5, 1.0])

    def candidate(first, second, weights):
        rows = np.ones((3, 50)) / 100
        curve = Curve(shares, {"cmc@1": first * rows, "mAP": second * rows})
        return Candidate("random", Blend(), curve, "both", weights)

    default, other = candidate(50, 50, DEFAULT), candidate(60, 49, OTHERS)
    level = Measured({m: np.full(50, 0.4) for m in ("cmc@1", "mAP")})
    found = Simulation(
        [default, other], level, level, again=lambda c: other.curve if c is other else default.curve
    )
    assert choose(found, ["cmc@1", "mAP"]).best is default
