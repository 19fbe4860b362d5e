"""The folder of `crossfade plan`: all that is in it, and which ones are refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from tests.cli.plan.conftest import QUICK

from crossfade import Upgrade
from crossfade.backfill.blend import stored
from crossfade.backfill.plan import Plan
from crossfade.errors import BadInput


def test_a_plan_is_a_folder_with_all_of_it(crossfade, folder):
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--items", "1000000", "--cost-per-1k", "2", *QUICK
    )
    assert ran.code == 0, ran.err
    assert {path.name for path in (folder / "p").iterdir()} == {
        "plan.json", "curves.parquet", "curve.png", "order.safetensors", "README.md",
    }  # fmt: skip
    plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
    assert plan["upgrade"] == Upgrade.load("mine").hash_
    assert plan["optimize"] == ["cmc@1", "mAP"]
    assert plan["costs"]["full"] == {"items": 1_000_000, "cost": 2000.0, "seconds": None}
    assert plan["recommendation"] in ran.out
    curves = pq.read_table("p/curves.parquet").to_pylist()
    # Orders and blends asked with new queries and with both, and the blended query.
    assert len(curves) == (6 * 2 * 2 + 1) * 2 * 101
    chosen = [
        r for r in curves
        if all(r[k] == plan[k] for k in ("asking", "order", "blend"))
        and r["metric"] == "mAP"
    ]  # fmt: skip
    assert all(r["low"] <= r["mean"] + 1e-9 and r["mean"] <= r["high"] + 1e-9 for r in chosen)
    area = np.trapezoid([r["mean"] for r in chosen], [r["share"] for r in chosen])
    assert plan["quality"]["mAP"]["area"] == pytest.approx(area)
    assert (folder / "p/README.md").read_text(encoding="utf-8").startswith("# Plan: ")


def test_a_plan_for_another_upgrade_is_refused(crossfade, folder, made):
    assert crossfade("plan", "mine", "held.npz", "-o", "p", *QUICK).code == 0
    other = Upgrade(solver="closed_form").fit(*made(seed=3))
    with pytest.raises(BadInput, match=r"was made for upgrade [0-9a-f]{12}, and this one is"):
        Plan.load(folder / "p", other)
    with pytest.raises(BadInput, match="is not a plan"):
        Plan.load(folder / "mine")
    (folder / "p/plan.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="is damaged"):
        Plan.load(folder / "p")


def test_a_plan_holds_what_carrying_it_out_needs(crossfade, folder):
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--order", "small-margin", "--blend", "1.2:0.2",
        "--volume", "0.8:1",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    upgrade = Upgrade.load("mine")
    loaded = Plan.load(folder / "p", upgrade)
    plan = loaded.record
    assert (plan.order, plan.groups, plan.classes) == ("small-margin", "classes", list(range(6)))
    assert (plan.blend, plan.last_blend, plan.volume, plan.last_volume) == (1.2, 0.2, 0.8, 1.0)
    assert plan.curve["share"] == pytest.approx(np.linspace(0, 1, 101).tolist())
    at_stop = plan.quality_at(plan.stop, "mAP")
    assert at_stop == pytest.approx(plan.quality["mAP"]["at the stop"])
    between = plan.quality_at(0.255, "mAP")
    assert between == pytest.approx((plan.curve["mAP"][25] + plan.curve["mAP"][26]) / 2)
    with pytest.raises(BadInput, match=r"the plan has no ndcg@10 at 0\.5"):
        plan.quality_at(0.5, "ndcg@10")
    with np.load("held.npz") as held:
        b, f = upgrade.backward(held["new"]), upgrade.forward(held["old"])
    found = loaded.stored(b, f, np.arange(300), 300)
    assert np.array_equal(found, stored(b, f, plan.how, np.arange(300) / 300, loaded.quiet))
    parts = [loaded.stored(b[i : i + 7], f[i : i + 7], np.arange(i, i + 7), 300) for i in (0, 7)]
    assert np.allclose(np.concatenate(parts), found[:14], atol=1e-6)


def test_a_plan_whose_quiet_direction_is_gone_is_refused(crossfade, folder):
    words = ["--order", "random", "--blend", "1", "--volume", "0.8:1"]
    assert crossfade("plan", "mine", "held.npz", "-o", "p", *words).code == 0
    tensors = load_file("p/order.safetensors")
    save_file({k: v for k, v in tensors.items() if "quiet" not in k}, "p/order.safetensors")
    with pytest.raises(BadInput, match=r"was edited|is damaged"):
        Plan.load(folder / "p")
