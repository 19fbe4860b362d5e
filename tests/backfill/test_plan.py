"""What a plan recommends, from curves made to say one thing."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.backfill import Items, curves, positions
from crossfade.backfill.blend import Blend, stored
from crossfade.backfill.choose import Costs, choose
from crossfade.backfill.curve import Curve
from crossfade.backfill.orders import ORDERS
from crossfade.backfill.simulate import (
    BLENDS,
    DEFAULT_ORDERS,
    FALLING,
    REFINED,
    VOLUMES,
    Candidate,
    Simulation,
    simulate,
)
from crossfade.backfill.volume import Quiet
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval import Measured, SameClass, measure

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
    return Candidate(order, Blend(a, a), Curve(SHARES, {"mAP": values}))


NEW = {"asking": ["new"]}
"""The paper's protocol: new queries alone."""


def simulation(*candidates, old=50.0, new=60.0, queries=400):
    def flat(height):
        return Measured({"mAP": np.full(queries, height / 100)})

    return Simulation(list(candidates), flat(old), flat(new))


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


def test_every_order_is_simulated_with_every_constant_blend(scene):
    upgrade, held, _ = scene
    found = simulate(upgrade, held, blends=BLENDS, points=5, **NEW)
    tried = [(c.order, c.blend) for c in found.candidates]
    assert tried == [(order, a) for a in BLENDS for order in DEFAULT_ORDERS]
    assert "alignment-error" in DEFAULT_ORDERS
    assert "priority" not in DEFAULT_ORDERS


def test_the_best_orders_are_tried_with_blends_that_change_along_them(loud_scene):
    upgrade, held = loud_scene
    found = simulate(upgrade, held, points=5, **NEW)
    tried = [(c.order, c.blend) for c in found.candidates]
    assert len(tried) == len(set(tried))
    constant = [c for c in found.candidates if c.blend in BLENDS]
    assert len(constant) == len(BLENDS) * len(DEFAULT_ORDERS)
    best = {}
    means = [np.mean([c.curve.area(m) for m in ("cmc@1", "mAP")]) for c in constant]
    for i in np.argsort(-np.array(means), kind="stable"):
        best.setdefault(constant[i].order, constant[i].blend)
    assert not found.quiet.enough
    expected = [(name, Blend(*ends)) for name in list(best)[:REFINED] for ends in FALLING]
    assert tried[len(constant) :] == expected


def test_where_a_direction_is_quiet_the_volume_is_turned_down_too(quiet_scene):
    upgrade, held, _ = quiet_scene
    found = simulate(upgrade, held, points=5, **NEW)
    assert found.quiet.enough
    extra = [c for c in found.candidates if c.blend not in BLENDS]
    by_order = len(FALLING) * len(VOLUMES) + len(VOLUMES) - 1
    assert len(extra) == REFINED * by_order
    assert {c.blend.first_volume for c in extra} == set(VOLUMES)
    assert {c.blend.last_volume for c in extra} == {1.0}


@pytest.fixture(scope="module")
def loud_scene():
    """Four dimensions, and queries that use them all."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 6
    new = rng.normal(size=(6, 4))[labels] + rng.normal(size=(400, 4))
    old = new @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(400, 3))
    upgrade = Upgrade(solver="closed_form").fit(old[:200], new[:200], labels[:200])
    return upgrade, Held.of(Pairs.from_arrays(old[200:], new[200:], labels[200:]))


@pytest.fixture(scope="module")
def quiet_scene(made):
    old, new, labels = made(rows=400, noise=1.0, n=40, d=30)
    upgrade = Upgrade(solver="closed_form").fit(old[:200], new[:200], labels[:200])
    pairs = Pairs.from_arrays(old[200:], new[200:], labels[200:])
    return upgrade, Held.of(pairs), pairs


@pytest.mark.parametrize("how", [Blend(), Blend(0.5, 0.5), Blend(1.2, 0.2), Blend(1, 0.3, 0.8, 1)])
def test_a_simulated_curve_is_the_papers_protocol_with_what_is_stored(quiet_scene, how):
    upgrade, held, pairs = quiet_scene
    found = simulate(
        upgrade, held, orders=["random"], blends=[how], points=5, quiet=Quiet.learn(
            upgrade.backward(pairs.new)
        ), **NEW
    )  # fmt: skip
    b, f = upgrade.backward(pairs.new), upgrade.forward(pairs.old)
    order = positions(ORDERS["random"](Items(np.arange(200), pairs.old, f)), np.arange(200))
    after = stored(b, f, how, order / 200, found.quiet)
    again = curves(b, f, after, {"it": order}, SameClass.among(pairs.labels), points=5)["it"]
    candidate_ = found.candidates[0]
    assert np.allclose(candidate_.curve.means("mAP"), again.means("mAP"))
    # Queries are not kept for every candidate, and are there when asked for.
    assert not isinstance(candidate_.curve, Curve)
    assert np.array_equal(found.curve(candidate_).values["mAP"], again.values["mAP"])


def test_a_gallery_may_start_as_old_vectors(scene):
    upgrade, held, pairs = scene
    found = simulate(
        upgrade, held, orders=["random"], blends=[1.0], points=5, start="old", asking=["new"]
    )
    b, placed = upgrade.backward(pairs.new), upgrade.in_shared_space(pairs.old)
    relevance = SameClass.among(pairs.labels)
    means = found.candidates[0].curve.means("mAP")
    assert means[0] == pytest.approx(measure(b, placed, relevance, ["mAP"]).mean("mAP"))
    assert means[-1] == pytest.approx(measure(b, b, relevance, ["mAP"]).mean("mAP"))
    lifted = simulate(upgrade, held, orders=["random"], blends=[1.0], points=5, **NEW)
    assert means[0] != pytest.approx(lifted.candidates[0].curve.means("mAP")[0])


def test_a_gallery_may_start_mixed_and_what_is_filled_stays(scene):
    upgrade, held, pairs = scene
    states = np.array(["old", "lifted", "filled", "lifted"] * 50)
    how = Blend(0.6, 0.6)
    found = simulate(
        upgrade, held, orders=["near-mse"], blends=[how], points=9, start=states, asking=["new"]
    )
    b, f, placed = (
        upgrade.backward(pairs.new),
        upgrade.forward(pairs.old),
        upgrade.in_shared_space(pairs.old),
    )
    before = np.where((states == "old")[:, None], placed, f)
    before[states == "filled"] = b[states == "filled"]
    after = stored(b, f, how)
    after[states == "filled"] = b[states == "filled"]
    relevance = SameClass.among(pairs.labels)
    means = found.candidates[0].curve.means("mAP")
    for gallery, share in ((before, 0), (after, -1)):
        expected = measure(b, gallery, relevance, ["mAP"]).mean("mAP")
        assert means[share] == pytest.approx(expected)
    # A quarter is done: up to there nothing changes, and then something does.
    assert means[0] == means[1] == means[2]
    assert means[3] != means[2]


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (np.array(["lifted"] * 199), "there are 199 states for 200 items"),
        (np.array(["lifted"] * 199 + ["half"]), "row 199 is 'half', which is no state of an item"),
    ],
)
def test_states_that_are_none_are_refused(scene, states, message):
    upgrade, held, _ = scene
    with pytest.raises(BadInput, match=message):
        simulate(upgrade, held, orders=["random"], blends=[1.0], points=3, start=states)


def test_scores_cannot_be_turned_down_where_queries_use_every_direction(loud_scene):
    upgrade, held = loud_scene
    with pytest.raises(BadInput, match="queries use every direction"):
        simulate(upgrade, held, orders=["random"], blends=[Blend(1, 1, 0.8)], points=3)


def test_orders_may_be_joined_and_priorities_given(scene):
    upgrade, held, _ = scene
    priority = np.random.default_rng(0).normal(size=200)
    found = simulate(
        upgrade,
        held,
        orders=["near-mse+priority", "priority"],
        blends=[1.0],
        **NEW,
        priority=priority,
        points=3,
    )
    assert [c.order for c in found.candidates] == ["near-mse+priority", "priority"]


def test_qrels_are_planned_with_clusters_for_classes(scene):
    upgrade, _, pairs = scene
    rng = np.random.default_rng(0)
    qrels = np.stack([np.arange(150), rng.integers(150, 200, 150)], axis=1)
    held = Held.of(Pairs.from_arrays(pairs.old, pairs.new), qrels=qrels)
    found = simulate(upgrade, held, blends=[1.0], metrics=["ndcg@10"], points=3, **NEW)
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
        return Candidate(order, Blend(a, a), Curve(SHARES, values))

    plain = two(np.full(11, 50), np.full(11, 30), "random")
    greedy = two(np.full(11, 49), np.full(11, 40), "greedy")
    fair = two(np.full(11, 51), np.full(11, 33), "fair", 0.7)
    flat = Measured({m: np.full(300, 0.3) for m in ("cmc@1", "mAP")})
    found = Simulation([plain, greedy, fair], flat, flat)
    assert choose(found, ["cmc@1", "mAP"]).best is fair
    assert choose(found, ["mAP"]).best is greedy
    assert choose(Simulation([plain, greedy], flat, flat), ["cmc@1", "mAP"]).best is plain
