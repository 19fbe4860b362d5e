"""What a plan recommends, from curves made to say one thing."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.backfill import blend, curves, positions
from crossfade.backfill.curve import Curve
from crossfade.backfill.orders import ORDERS
from crossfade.backfill.plan import Costs, choose
from crossfade.backfill.simulate import (
    ALIGNMENT,
    BLENDS,
    DEFAULT_ORDERS,
    Candidate,
    Simulation,
    simulate,
)
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval import Measured, SameClass

SHARES = np.linspace(0, 1, 11)


def candidate(heights, order="random", a=1.0, queries=400, seed=0):
    """A curve of these means over queries that differ a little."""
    rng = np.random.default_rng(seed)
    spread = rng.normal(scale=0.02, size=queries)
    spread -= spread.mean()
    values = (
        np.asarray(heights)[:, None] / 100
        + spread[None]
        + rng.normal(scale=0.01, size=(11, queries))
    )
    values += np.asarray(heights)[:, None] / 100 - values.mean(axis=1, keepdims=True)
    return Candidate(order, a, Curve(SHARES, {"mAP": values}))


def simulation(*candidates, old=50.0, new=60.0, queries=400):
    def flat(height):
        return Measured({"mAP": np.full(queries, height / 100)})

    return Simulation(list(candidates), flat(old), flat(new), None, None)


def rising(top, start=52.0, until=10):
    heights = np.full(11, float(top))
    heights[: until + 1] = np.linspace(start, top, until + 1)
    return heights


def test_the_largest_area_wins():
    low, high = candidate(rising(60), "low"), candidate(rising(60, until=4), "high")
    assert choose(simulation(low, high), ["mAP"]).best is high


def test_within_a_budget_the_area_up_to_it_wins():
    early = candidate([52, 58, 58, 58, 58, 58, 58, 58, 58, 58, 58], "early")
    late = candidate([52, 52, 52, 66, 66, 66, 66, 66, 66, 66, 66], "late")
    both = simulation(early, late)
    assert choose(both, ["mAP"]).best is late
    found = choose(both, ["mAP"], budget=0.2)
    assert found.best is early
    assert found.peak <= 0.2
    assert choose(both, ["mAP"], budget=0.0).stop == 0.0


def test_it_stops_where_more_is_no_better():
    found = choose(simulation(candidate(rising(61, until=4))), ["mAP"])
    assert found.recommendation == "backfill 40%"
    assert found.stop == pytest.approx(0.4)
    assert found.reach["mAP"] == pytest.approx(0.4)
    assert found.qualities["mAP"]["at the stop"] == pytest.approx(61.0)


def test_a_curve_that_falls_says_stop_at_0():
    found = choose(simulation(candidate(np.linspace(70, 60, 11))), ["mAP"])
    assert (found.recommendation, found.stop, found.reach["mAP"]) == ("stop at 0 %", 0.0, 0.0)


def test_a_curve_that_rises_to_the_end_says_full_backfill():
    found = choose(simulation(candidate(rising(60))), ["mAP"])
    assert (found.recommendation, found.stop) == ("do a full backfill", 1.0)
    limited = choose(simulation(candidate(rising(60))), ["mAP"], budget=0.5)
    assert limited.recommendation == "backfill 50%"
    assert limited.reach["mAP"] is None


def test_a_curve_below_todays_index_says_do_not_upgrade():
    found = choose(simulation(candidate(rising(60)), old=65.0), ["mAP"])
    assert (found.recommendation, found.stop) == ("do not upgrade", 0.0)


def test_a_target_stands_in_for_new_new():
    found = choose(simulation(candidate(rising(62, start=52))), ["mAP"], target=56.0)
    assert found.reach["mAP"] == pytest.approx(0.4)


@pytest.mark.parametrize("budget", [-0.1, 1.1])
def test_a_budget_is_a_share(budget):
    with pytest.raises(BadInput, match=r"a budget of .* → use a share from 0 to 1"):
        choose(simulation(candidate(rising(60))), ["mAP"], budget=budget)


def test_costs_are_those_of_the_items_re_embedded():
    assert Costs(1001).record(0.5) == {"items": 500, "cost": None, "seconds": None}


@pytest.fixture(scope="module")
def scene(made):
    old, new, labels = made(rows=400, noise=1.0)
    upgrade = Upgrade(solver="closed_form").fit(old[:200], new[:200], labels[:200])
    pairs = Pairs.from_arrays(old[200:], new[200:], labels[200:])
    return upgrade, Held.of(pairs), pairs


def test_every_order_is_simulated_with_every_blend(scene):
    upgrade, held, _ = scene
    found = simulate(upgrade, held, points=5)
    tried = [(c.order, c.blend) for c in found.candidates]
    assert tried == [(order, a) for a in BLENDS for order in DEFAULT_ORDERS]
    assert ALIGNMENT in DEFAULT_ORDERS
    assert "priority" not in DEFAULT_ORDERS


def test_a_simulated_curve_is_the_papers_protocol(scene):
    upgrade, held, pairs = scene
    found = simulate(upgrade, held, orders=["random"], blends=[1.0, 0.5], points=5)
    b, f = upgrade.backward(pairs.new), upgrade.forward(pairs.old)
    from crossfade.backfill import Items

    order = positions(ORDERS["random"](Items(np.arange(200), pairs.old, f)), np.arange(200))
    for candidate_, a in zip(found.candidates, (1.0, 0.5), strict=True):
        again = curves(
            b, f, blend(b, f, a), {"it": order}, SameClass.among(pairs.labels), points=5
        )["it"]
        assert np.array_equal(candidate_.curve.values["mAP"], again.values["mAP"])


def test_orders_may_be_joined_and_priorities_given(scene):
    upgrade, held, _ = scene
    priority = np.random.default_rng(0).normal(size=200)
    found = simulate(
        upgrade,
        held,
        orders=["near-mse+priority", "priority"],
        blends=[1.0],
        priority=priority,
        points=3,
    )
    assert [c.order for c in found.candidates] == ["near-mse+priority", "priority"]


def test_qrels_are_planned_with_clusters_for_classes(scene):
    upgrade, _, pairs = scene
    rng = np.random.default_rng(0)
    qrels = np.stack([np.arange(150), rng.integers(150, 200, 150)], axis=1)
    held = Held.of(Pairs.from_arrays(pairs.old, pairs.new), qrels=qrels)
    found = simulate(upgrade, held, blends=[1.0], metrics=["ndcg@10"], points=3)
    assert found.groups is not None
    assert not found.groups.labelled


def test_without_labels_and_qrels_there_is_no_plan(scene):
    upgrade, _, pairs = scene
    with pytest.raises(BadInput, match="a plan is made on labels or qrels"):
        simulate(upgrade, Held.of(Pairs.from_arrays(pairs.old, pairs.new)))


def test_an_order_that_wins_one_metric_at_the_cost_of_another_is_not_chosen():
    def two(first, second, order, a=1.0):
        values = {
            m: np.tile(np.asarray(h)[:, None] / 100, (1, 300))
            for m, h in (("cmc@1", first), ("mAP", second))
        }
        return Candidate(order, a, Curve(SHARES, values))

    plain = two(np.full(11, 50), np.full(11, 30), "random")
    greedy = two(np.full(11, 49), np.full(11, 40), "greedy")
    fair = two(np.full(11, 51), np.full(11, 33), "fair", 0.7)
    flat = Measured({m: np.full(300, 0.3) for m in ("cmc@1", "mAP")})
    found = Simulation([plain, greedy, fair], flat, flat, None, None)
    assert choose(found, ["cmc@1", "mAP"]).best is fair
    assert choose(found, ["mAP"]).best is greedy
    assert (
        choose(Simulation([plain, greedy], flat, flat, None, None), ["cmc@1", "mAP"]).best is plain
    )
