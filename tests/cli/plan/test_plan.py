"""`crossfade plan`: what it simulates, what it chooses, and its refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.cli.plan.conftest import QUICK


def test_the_choice_has_the_largest_mean_area_of_those_not_below_random(crossfade, folder):
    words = [*QUICK, "--ask", "new", "--json", "-"]
    plan = json.loads(crossfade("plan", "mine", "held.npz", *words).out)
    areas = {
        (c["order"], c["blend"]): np.array(list(c["area"].values())) for c in plan["candidates"]
    }
    fair = {name: a.mean() for name, a in areas.items() if (a >= areas["random", 1.0]).all()}
    assert max(fair, key=fair.get) == (plan["order"], plan["blend"])


def test_the_pairs_of_the_fit_are_planned_on_their_validation_rows(crossfade, folder):
    ran = crossfade("plan", "mine", "fitted.npz", "-o", "p", *QUICK)
    assert ran.code == 0, ran.err
    assert "simulated on its 60 validation rows" in " ".join(ran.err.split())
    assert json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))["gallery"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mixed.npz"], "of these pairs were fitted on, and a plan made on them would promise"),
        (["held.npz", "--budget", "1.5"], "a budget of 1.5 → use a share from 0 to 1"),
        (["held.npz", "--order", "alphabetic"], "there is no order 'alphabetic'"),
        (["held.npz", "--order", "priority"], "the items have no priorities"),
        (["held.npz", "--blend", "2.5"], "a blend of 2.5"),
        (["held.npz", "--blend", "half"], "'half' is neither a number nor two"),
        (["held.npz", "--blend", "1:0.5:0"], "'1:0.5:0' is neither a number nor two"),
        (["held.npz", "--blend", "1", "--volume", "1.5:1"], "a volume of 1.5"),
        (["held.npz", "--start", "filled"], "a gallery that is filled needs no plan"),
        (["held.npz", "--start", "short.npy"], "there are 5 values for 300 pairs"),
        (["held.npz", "--start", "odd.npy"], "row 2 is 'half', which is no state of an item"),
        (["held.npz", "--priority", "short.npy"], "there are 5 values for 300 pairs"),
        (["held.npz", "--optimize", "speed"], "there is no metric named 'speed'"),
        (["held.npz", "--optimize", "agreement@5"], "agreement has no curve"),
        (["unlabelled.npz"], "a plan is made on labels or qrels"),
        (["held.npz", "-o", "nowhere/p"], "nowhere/p: cannot be written"),
        (["held.npz", "-o", "mine"], "mine: already exists"),
        (["held.npz", "-o", "mine", "--overwrite"], "mine: is there and is not a plan"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(crossfade, folder, arguments, message):
    with np.load("held.npz") as held:
        np.savez("unlabelled.npz", old=held["old"], new=held["new"])
    np.save("short.npy", np.zeros(5, int))
    np.save("odd.npy", np.array(["old", "lifted", "half"] * 100))
    before = {path.name for path in folder.iterdir()}
    ran = crossfade("plan", "mine", *arguments, *([] if "--blend" in arguments else QUICK))
    assert ran.code == 2, (ran.out, ran.err)
    assert message in " ".join(ran.err.split())
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("start", ["old", "states.npy"])
def test_a_plan_may_start_from_a_gallery_that_is_not_lifted(crossfade, folder, start):
    np.save("states.npy", np.array(["old", "lifted", "filled"] * 100))
    words = ["--order", "random", "--blend", "1", "--ask", "new", "--json", "-"]
    lifted = json.loads(crossfade("plan", "mine", "held.npz", "-o", "a", *words).out)
    other = json.loads(
        crossfade("plan", "mine", "held.npz", "-o", "b", *words, "--start", start).out
    )
    assert (lifted["start"], other["start"]) == ("lifted", "by row" if ".npy" in start else start)
    assert lifted["curve"]["mAP"][0] != other["curve"]["mAP"][0]
    assert lifted["curve"]["mAP"][-1] == pytest.approx(other["curve"]["mAP"][-1])
    if start != "old":
        assert other["curve"]["mAP"][0] == other["curve"]["mAP"][33]


def test_states_and_priorities_follow_the_rows_that_are_simulated(crossfade, folder):
    np.save("states.npy", np.array(["old", "lifted", "filled"] * 100))
    np.save("p.npy", np.arange(300.0))
    ran = crossfade(
        "plan", "mine", "fitted.npz", "-o", "p", "--order", "priority", "--priority", "p.npy",
        "--start", "states.npy", "--blend", "1",
    )  # fmt: skip
    assert ran.code == 0, ran.err


def test_few_items_of_a_class_are_worth_a_warning(crossfade, folder):
    with np.load("held.npz") as held:
        np.savez("few.npz", **{k: held[k][:36] for k in ("old", "new", "labels")})
    ran = crossfade("plan", "mine", "few.npz", "-o", "p", "--order", "random", "--blend", "1")
    assert ran.code == 0, ran.err
    assert "the pairs have 6 items of a class in the median" in " ".join(ran.err.split())
    plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
    assert len(plan["warnings"]) == 1
