"""Plans know how to ask: curves of both models' queries, the lowest point, and when old may go."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.compatibility.test_asked import lookups

from crossfade.asking import Both
from crossfade.backfill.blend import Blend
from crossfade.backfill.choose import Costs, choose
from crossfade.backfill.curve import Curve
from crossfade.backfill.plan import Made, Plan
from crossfade.backfill.record import describe
from crossfade.backfill.simulate import Candidate, Simulation, simulate
from crossfade.errors import BadInput
from crossfade.retrieval import Measured

__all__ = ["lookups"]
METRICS = ["ndcg@10"]


@pytest.fixture(scope="module")
def simulated(lookups):
    upgrade, held = lookups
    return simulate(upgrade, held, orders=["random"], metrics=METRICS, points=11)


def test_a_curve_of_both_is_the_ranking_at_every_share(lookups, simulated):
    """Against a loop that scores each item as what it is at that share."""
    upgrade, held = lookups
    found = next(c for c in simulated.candidates if c.asking == "both")
    exact = simulated.again(found)
    mapped = upgrade.backward(held.gallery_new)
    both = Both(
        upgrade.as_stored(held.query_old),
        upgrade.backward(held.query_new),
        upgrade.as_stored(held.gallery_old),
    )
    now, then = both.as_old(), both.as_filled(mapped)
    before, after = now.queries @ now.items.T, then.queries @ then.items.T
    order = simulate(
        upgrade, held, orders=["random"], blends=[1.0], metrics=METRICS, asking=["both"], points=11
    ).candidates[0]
    assert np.allclose(order.curve.means("ndcg@10"), exact.means("ndcg@10"))
    for share, scores in ((0, before), (10, after)):
        ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
        gains = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)
        assert exact.values["ndcg@10"][share] == pytest.approx(gains, abs=1e-6)


def test_where_new_queries_begin_below_today_both_is_recommended(simulated):
    found = choose(simulated, METRICS)
    assert found.best.asking == "both"
    assert found.ways["new"].below
    assert not found.ways["both"].below
    assert found.ways["new"].against_today < -5
    low = found.lowest["ndcg@10"]
    assert low.quality == pytest.approx(min(found.best.curve.means("ndcg@10")))
    assert not low.below
    assert found.recommendation.startswith("ask both, backfill ")
    alone = found.alone["ndcg@10"]
    curve = simulated.alone(found.best).means("ndcg@10")
    shares = found.best.curve.shares
    today = simulated.old.mean("ndcg@10")
    assert (curve[shares >= alone.reaches] >= today).all()
    assert curve[shares < alone.reaches][-1] < today
    assert found.stop >= alone.reaches


def test_a_plan_asks_only_as_it_is_told(lookups):
    upgrade, held = lookups
    found = simulate(
        upgrade, held, orders=["random"], blends=[1.0], metrics=METRICS, asking=["new"], points=5
    )
    assert {c.asking for c in found.candidates} == {"new"}
    assert choose(found, METRICS).best.asking == "new"
    with pytest.raises(BadInput, match="a plan does not ask 'old'"):
        simulate(upgrade, held, metrics=METRICS, asking=["old"])


def flat(height, spread, asking, queries=400):
    rng = np.random.default_rng(len(asking))
    values = height / 100 + spread * rng.normal(size=(1, queries)).repeat(3, axis=0)
    values += height / 100 - values.mean()
    return Candidate("random", Blend(), Curve(np.array([0, 0.5, 1.0]), {"mAP": values}), asking)


def simulation(*candidates, old=50.0):
    level = Measured({"mAP": np.full(400, old / 100)})
    return Simulation(
        list(candidates), level, level, again=lambda c: next(
            x.curve for x in candidates if x.asking == c.asking
        )
    )  # fmt: skip


def test_new_queries_alone_are_preferred_where_they_are_as_good():
    new, both = flat(60.0, 0.001, "new"), flat(60.2, 0.001, "both")
    assert choose(simulation(new, both), ["mAP"]).best is new
    assert choose(simulation(flat(59.0, 0.001, "new"), both), ["mAP"]).best is both


def test_where_new_queries_are_never_below_nothing_has_to_be_waited_for():
    found = choose(simulation(flat(55.0, 0.001, "new"), flat(60.0, 0.001, "both")), ["mAP"])
    assert found.best.asking == "both"
    assert "new queries alone are at no share below today's level" in found.reason
    assert "do not finish" not in found.reason


def test_a_way_below_today_is_taken_only_if_all_are():
    new, both = flat(40.0, 0.001, "new"), flat(30.0, 0.001, "both")
    found = choose(simulation(new, both), ["mAP"])
    assert found.best is new
    assert found.recommendation == "do not upgrade"
    level = flat(50.0, 0.001, "both")
    assert choose(simulation(new, level), ["mAP"]).best is level


def test_where_new_queries_never_do_alone_the_old_vectors_are_kept():
    new, both = flat(40.0, 0.001, "new"), flat(55.0, 0.001, "both")
    found = choose(simulation(new, both), ["mAP"])
    assert found.alone["mAP"].reaches is None
    assert "keep the old vectors (finish --keep-old)" in found.reason


def test_rows_that_are_filled_count_as_filled_from_the_start(lookups):
    upgrade, held = lookups
    given = {"orders": ["random"], "blends": [1.0], "metrics": METRICS, "points": 5}
    asking = {"asking": ["both"]}
    plain = simulate(upgrade, held, **given, **asking).candidates[0].curve.means("ndcg@10")
    states = np.where(np.arange(held.gallery) % 2 == 0, "filled", "lifted")
    half = simulate(upgrade, held, **given, **asking, start=states)
    means = half.candidates[0].curve.means("ndcg@10")
    assert means[0] == pytest.approx(means[2])
    assert means[0] > plain[0] + 2
    assert means[-1] == pytest.approx(plain[-1], abs=1e-3)


def test_a_plan_says_on_disk_how_to_ask(lookups, simulated, tmp_path):
    upgrade, held = lookups
    choice = choose(simulated, METRICS)
    made = describe(
        upgrade,
        simulated,
        choice,
        Costs(1000),
        data="lookups",
        gallery=held.gallery,
        optimize=METRICS,
        budget=1.0,
        warnings=[],
    )
    Plan.of(made, Made(simulated, choice)).save(tmp_path / "plan")
    plan = Plan.load(tmp_path / "plan", upgrade).record
    assert plan.curve == made.curve
    assert plan.asking == "both"
    assert plan.alone_from == choice.alone["ndcg@10"].reaches
    assert plan.ways["new"]["against_today"] < 0
    card = (tmp_path / "plan/README.md").read_text(encoding="utf-8")
    assert "Ask **both**" in card
    assert "against today" in card
    record = json.loads((tmp_path / "plan/plan.json").read_text(encoding="utf-8"))
    assert record["asking"] == "both"
    assert record["lowest"]["ndcg@10"]["ci95"][1] >= 0
