"""What a plan takes is below today's index in no metric and at no share, if it can help it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.compatibility.test_asked import lookups

from crossfade.asking import DEFAULT, Weights
from crossfade.backfill.blend import Blend
from crossfade.backfill.choose import BELOW, choose
from crossfade.backfill.curve import Curve, halves
from crossfade.backfill.simulate import Candidate, Simulation, simulate
from crossfade.retrieval import Measured, from_qrels
from crossfade.upgrade import Upgrade

__all__ = ["lookups"]
SHARES = np.linspace(0, 1, 11)
QUERIES = 400
TODAY = 50.0


def curve(spread=0.01, seed=0, **by_metric):
    """Of each metric its means in percent, the same noise of a query at every share."""
    noise = spread * np.random.default_rng(seed).normal(size=QUERIES)
    noise -= noise.mean()
    values = {m: np.broadcast_to(h, 11)[:, None] / 100 + noise for m, h in by_metric.items()}
    return Curve(SHARES, values)


def simulation(*candidates, today=TODAY, lifted=None):
    """Lines as `simulate` leaves them, and the curves behind them."""
    metrics = list(candidates[0].curve.values)
    level = Measured({m: np.full(QUERIES, today / 100) for m in metrics})
    curves = {(c.order, c.blend, c.asking): c.curve for c in candidates}
    # New queries alone, where they are none of the candidates.
    poor = curve(**dict.fromkeys(metrics, 20.0))
    lines = [replace(c, curve=c.curve.line(level.values)) for c in candidates]

    def again(one):
        if one.lift != 1:
            return lifted[one.lift]
        return curves.get((one.order, one.blend, one.asking), poor)

    return Simulation(lines, level, level, again=again, lifts=tuple(lifted or ()))


def new(order, **by_metric):
    return Candidate(order, Blend(), curve(**by_metric), "new")


def both(order, **by_metric):
    return Candidate(order, Blend(), curve(**by_metric), "both")


def dip(height, depth, at=3):
    return np.where(np.arange(11) == at, height - depth, height)


def test_of_two_orders_the_one_that_never_dips_is_taken_though_it_has_less():
    dips, level = both("far-mse", mAP=dip(60.0, 15.0)), both("random", mAP=55.0)
    found = choose(simulation(dips, level), ["mAP"])
    assert found.best.order == "random"
    assert not found.warnings
    # Of today at 40 there is no dip below it.
    assert choose(simulation(dips, level, today=40.0), ["mAP"]).best.order == "far-mse"


def test_a_dip_in_one_of_two_metrics_counts_though_the_mean_of_both_has_none():
    dips = both("far-mse", mAP=dip(60.0, 15.0), **{"cmc@1": 80.0})
    level = both("random", mAP=52.0, **{"cmc@1": 60.0})
    assert choose(simulation(dips, level), ["mAP", "cmc@1"]).best.order == "random"
    assert choose(simulation(dips, level), ["cmc@1"]).best.order == "far-mse"


def test_a_way_of_asking_that_dips_in_one_metric_is_left_for_one_that_does_not():
    alone = new("random", mAP=dip(70.0, 25.0), **{"cmc@1": 90.0})
    two = both("random", mAP=55.0, **{"cmc@1": 55.0})
    found = choose(simulation(alone, two), ["mAP", "cmc@1"])
    assert found.asked[0] == (0.0, "both")
    # Beyond its dip it is as good, and asked alone.
    assert found.asked[1:] == ((pytest.approx(0.4), "new"),)
    assert found.curve.means("mAP").min() > TODAY


def test_beyond_the_budget_nothing_counts():
    dips, level = both("far-mse", mAP=dip(60.0, 15.0, at=8)), both("random", mAP=55.0)
    assert choose(simulation(dips, level), ["mAP"]).best.order == "random"
    assert choose(simulation(dips, level), ["mAP"], budget=0.5).best.order == "far-mse"


def test_where_all_that_was_tried_dips_the_best_is_taken_and_said_to():
    worse, better = both("random", mAP=dip(55.0, 15.0)), both("far-mse", mAP=dip(60.0, 13.0, at=5))
    found = choose(simulation(worse, better), ["mAP"])
    assert found.best.order == "far-mse"
    (said,) = found.warnings
    assert said.startswith(BELOW)
    assert "mAP by 3.0 points" in said and "at 50%" in said
    assert BELOW in found.reason
    # Where nobody can tell what today's level is, nothing is said of it.
    gone = replace(simulation(worse, better), old=None)
    assert not choose(gone, ["mAP"]).warnings


def test_a_dip_that_may_be_chance_is_none():
    noisy = Candidate("far-mse", Blend(), curve(spread=1.0, mAP=dip(60.0, 15.0)), "both")
    assert choose(simulation(noisy, both("random", mAP=55.0)), ["mAP"]).best.order == "far-mse"


def test_rows_store_a_mixture_where_what_is_lifted_begins_below_today():
    rising = np.linspace(45.0, 80.0, 11)
    mixed = {0.5: curve(mAP=np.linspace(51.0, 60.0, 11)), 0.0: curve(mAP=np.full(11, 49.0))}
    found = choose(simulation(new("random", mAP=rising), lifted=mixed), ["mAP"])
    assert found.best.lift == 0.5
    assert not found.warnings
    above = choose(simulation(new("random", mAP=rising + 6), lifted=mixed), ["mAP"])
    assert above.best.lift == 1


def test_a_blend_is_chosen_on_half_of_the_queries_and_confirmed_by_the_other():
    first, second = halves(QUERIES)
    assert sorted([*first, *second]) == list(range(QUERIES))
    plain = new("random", mAP=60.0)

    def blended(on_first, on_second):
        values = plain.curve.values["mAP"].copy()
        values[:, first] += on_first / 100
        values[:, second] += on_second / 100
        made = replace(plain, blend=Blend(0.7, 0.7), curve=Curve(SHARES, {"mAP": values}))
        return choose(simulation(plain, made), ["mAP"]).best.blend.plain

    assert blended(on_first=2, on_second=-1)
    assert blended(on_first=-1, on_second=3)
    assert not blended(on_first=2, on_second=2)


def test_lines_know_how_sure_they_are_against_today():
    rng = np.random.default_rng(5)
    values, today = rng.random((11, QUERIES)), rng.random(QUERIES)
    # Queries with nothing relevant have no value, and count nowhere.
    values[:, 7], today[7] = np.nan, np.nan
    line = Curve(SHARES, {"mAP": values}).line({"mAP": today})
    kept = np.delete(np.arange(QUERIES), 7)
    gain = 100 * (values - today)[:, kept]
    assert line.errors["mAP"] == pytest.approx(gain.std(axis=1) / np.sqrt(QUERIES - 1))
    half = values[:, kept][:, halves(QUERIES - 1)[0]]
    assert line.half("mAP") == pytest.approx(100 * half.mean(axis=1))


def test_both_may_begin_as_today_where_the_maps_know_nothing(lookups):
    """With maps that only harm there is always today's search, until rows are filled."""
    _, held = lookups
    rng = np.random.default_rng(3)
    blind = Upgrade(solver="closed_form").fit(*rng.normal(size=(2, 900, 40)), force=True)
    metrics = ["ndcg@10"]
    # Too few queries to choose weights by: those that need no data are all there is.
    few = 30
    asked = replace(
        held,
        query_old=held.query_old[:few],
        query_new=held.query_new[:few],
        relevance=from_qrels(np.stack([np.arange(few)] * 2, axis=1), few, held.gallery),
    )
    found = simulate(
        blind, asked, orders=["random"], blends=[1.0], metrics=metrics, asking=["both"], points=5
    )
    as_today = Weights(
        old_backward=0, lifted_backward=0, lifted_forward=0, filled_new=DEFAULT.filled_new
    )
    tried = {c.weights: c for c in found.candidates}
    assert as_today in tried
    today = found.old.mean("ndcg@10")
    assert tried[as_today].curve.means("ndcg@10")[0] == pytest.approx(today, abs=1e-6)
    assert choose(found, metrics).best.weights == as_today


def test_what_begins_above_today_needs_no_such_weights(lookups):
    upgrade, held = lookups
    found = simulate(
        upgrade, held, orders=["random"], blends=[1.0], metrics=["ndcg@10"], asking=["both"],
        points=5,
    )  # fmt: skip
    assert all(c.weights.old_backward > 0 for c in found.candidates)


def test_what_is_left_after_the_end_is_new_queries_alone_and_filling_has_to_pay_for_them():
    """Both are as good with half of the rows filled; what comes after them gains to the end."""
    rising = np.linspace(30.0, 70.0, 11)
    two = Candidate("random", Blend(), curve(mAP=np.minimum(50 + 6 * np.arange(11), 80)), "both")
    alone = Candidate("random", Blend(), curve(mAP=rising), "new")
    found = choose(simulation(two, alone), ["mAP"])
    assert found.asked == ((0.0, "both"),)
    assert found.alone["mAP"].reaches == pytest.approx(0.5)
    assert found.stop == 1
    assert "beyond 50% nothing" in found.reason and "they gain up to 100%" in found.reason
    # Where the gain ends, so does the filling; and where new queries never do, they do not count.
    level_from = Candidate("random", Blend(), curve(mAP=np.minimum(rising, 58.0)), "new")
    assert choose(simulation(two, level_from), ["mAP"]).stop == pytest.approx(0.7)
    never = Candidate("random", Blend(), curve(mAP=rising - 30), "new")
    found = choose(simulation(two, never), ["mAP"])
    assert found.stop == pytest.approx(0.5)
    assert "--keep-old" in found.reason
