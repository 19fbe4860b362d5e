"""What rows store before they are filled: F(old), unless something else is better beyond doubt."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.compatibility.test_asked import lookups

from crossfade import plan
from crossfade.backfill.blend import Blend
from crossfade.backfill.choose import choose
from crossfade.backfill.curve import Curve
from crossfade.backfill.plan import HASH, PLAN, Plan, content_hash
from crossfade.backfill.simulate import LIFTS, Candidate, Simulation, simulate
from crossfade.errors import BadInput
from crossfade.retrieval import Measured, measure

__all__ = ["lookups"]
METRICS = ["ndcg@10"]
SHARES = np.linspace(0, 1, 11)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("lift", [0.0, 0.4])
def test_a_curve_begins_at_what_a_gallery_of_the_mixture_has(lookups, lift):
    upgrade, held = lookups
    found = simulate(
        upgrade, held, orders=["random"], blends=[1.0], metrics=METRICS, asking=["new"], points=5
    )
    curve = found.lifted(found.candidates[0], lift).curve
    mixed = lift * upgrade.forward(held.gallery_old) + (1 - lift) * upgrade.in_shared_space(
        held.gallery_old
    )
    asked = upgrade.backward(held.query_new)
    expected = measure(asked, unit(mixed), held.relevance, METRICS).mean("ndcg@10")
    assert curve.means("ndcg@10")[0] == pytest.approx(expected, abs=1e-3)
    # Filled rows are what they were.
    plain = found.candidates[0].curve.means("ndcg@10")
    assert curve.means("ndcg@10")[-1] == pytest.approx(plain[-1], abs=1e-3)


def curve(heights, spread=0.05, queries=400, seed=0):
    noise = spread * np.random.default_rng(seed).normal(size=(1, queries))
    values = np.asarray(heights)[:, None] / 100 + noise - noise.mean()
    return Curve(SHARES, {"mAP": values})


def simulation(by_lift, both=None):
    """New queries alone at each lift, and perhaps both models' beside, which do not see it."""
    candidates = [Candidate("random", Blend(), by_lift[1.0].line())]
    if both is not None:
        candidates.append(Candidate("random", Blend(), both.line(), "both"))
    level = Measured({"mAP": np.full(400, 0.5)})
    return Simulation(
        candidates,
        level,
        level,
        again=lambda c: both if c.asking == "both" else by_lift[c.lift],
        lifts=tuple(lift for lift in by_lift if lift != 1),
    )


def rising(first, last=70.0):
    return np.linspace(first, last, 11)


def test_rows_are_not_lifted_where_that_is_better_beyond_doubt():
    found = choose(simulation({1.0: curve(rising(52)), 0.0: curve(rising(58))}), ["mAP"])
    assert found.best.lift == 0
    assert found.qualities["mAP"]["at 0 %"] == pytest.approx(58.0)
    assert found.lifts == pytest.approx({1.0: 61.0, 0.0: 64.0})


def test_of_mixtures_the_best_is_taken():
    by_lift = {1.0: curve(rising(52)), 0.0: curve(rising(54)), 0.5: curve(rising(57))}
    assert choose(simulation(by_lift), ["mAP"]).best.lift == 0.5


def test_a_gain_that_may_be_chance_changes_nothing():
    level, other = curve(rising(52)), curve(rising(52.1), spread=0.2, seed=1)
    assert choose(simulation({1.0: level, 0.5: other}), ["mAP"]).best.lift == 1


def test_where_both_are_asked_rows_store_what_new_queries_alone_do_best_with():
    by_lift = {1.0: curve(rising(40, 60)), 0.0: curve(rising(46, 60))}
    found = choose(simulation(by_lift, both=curve(np.full(11, 66.0))), ["mAP"])
    assert (found.best.asking, found.best.lift) == ("both", 0)
    assert found.alone["mAP"].at_first == pytest.approx(46.0)
    assert found.qualities["mAP"]["at 0 %"] == pytest.approx(66.0)


def test_new_queries_go_alone_from_the_share_on_at_which_they_are_as_good():
    new, both = curve(rising(40, 72), spread=0.01), curve(np.full(11, 66.0), spread=0.01)
    found = choose(simulation({1.0: new}, both=both), ["mAP"])
    # 40 + 3.2 for every tenth: 65.6 at 80 %, which is within half a point of 66.
    assert found.asked == ((0.0, "both"), (0.8, "new"))
    means = found.curve.means("mAP")
    assert means[:8] == pytest.approx(66.0)
    assert means[8:] == pytest.approx(rising(40, 72)[8:])
    assert "from 80% on new queries alone are as good" in found.reason


def test_where_both_stay_better_they_are_asked_throughout():
    both = curve(np.full(11, 80.0))
    found = choose(simulation({1.0: curve(rising(40, 72))}, both=both), ["mAP"])
    assert found.asked == ((0.0, "both"),)


def test_a_plan_tells_what_rows_store_and_a_former_one_is_still_read(lookups, tmp_path):
    upgrade, held = lookups
    made = plan(upgrade, held, optimize=METRICS, orders=["random"], blends=[1.0])
    assert set(made.record.lifts) == {"1", *(f"{lift:g}" for lift in LIFTS)}
    made.save(tmp_path / "plan")
    read = Plan.load(tmp_path / "plan", upgrade).record
    for name in ("asked", "lift", "lifts", "curve", "format"):
        assert getattr(read, name) == getattr(made.record, name)
    record = json.loads((tmp_path / "plan" / PLAN).read_text(encoding="utf-8"))
    for name in ("asked", "lift", "lifts", HASH):
        record.pop(name)
    record["format"] = 1
    record[HASH] = content_hash(record, tmp_path / "plan")
    (tmp_path / "plan" / PLAN).write_text(json.dumps(record), encoding="utf-8")
    former = Plan.load(tmp_path / "plan", upgrade).record
    assert (former.asking_at(0.9), former.lift) == (made.record.asking, 1.0)


def test_what_rows_store_already_is_not_mixed_anew(lookups):
    upgrade, held = lookups
    with pytest.raises(BadInput, match="rows of this gallery store something already"):
        plan(upgrade, held, optimize=METRICS, start="old", lifts=[0.5])
    with pytest.raises(BadInput, match=r"a lift of 1\.5"):
        plan(upgrade, held, optimize=METRICS, lifts=[1.5])
    kept = plan(upgrade, held, optimize=METRICS, orders=["random"], blends=[1.0], start="old")
    assert kept.record.lift == 1
