"""`crossfade plan`: its folder, the order of a gallery, and its refusals."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from crossfade import Upgrade
from crossfade.backfill import ORDERS, Groups, Items, positions
from crossfade.backfill.folder import load_plan
from crossfade.errors import BadInput


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old, new, labels = made(rows=600, noise=1.2)
    Upgrade(solver="closed_form").fit(old[:300], new[:300], labels[:300]).save("mine")
    np.savez("fitted.npz", old=old[:300], new=new[:300], labels=labels[:300])
    np.savez("held.npz", old=old[300:], new=new[300:], labels=labels[300:])
    np.savez("mixed.npz", old=old[200:], new=new[200:], labels=labels[200:])
    np.save("gallery.npy", old)
    np.save("gallery_labels.npy", labels)
    np.save("ids.npy", np.random.default_rng(0).permutation(10_000)[:600])
    return tmp_path


QUICK = ["--blend", "1", "--blend", "0.5"]


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
    assert len(curves) == 6 * 2 * 2 * 101  # orders, blends, metrics, points
    chosen = [
        r for r in curves if (r["order"], r["blend"]) == (plan["order"], plan["blend"])
        and r["metric"] == "mAP"
    ]  # fmt: skip
    assert all(r["low"] <= r["mean"] + 1e-9 and r["mean"] <= r["high"] + 1e-9 for r in chosen)
    area = np.trapezoid([r["mean"] for r in chosen], [r["share"] for r in chosen])
    assert plan["quality"]["mAP"]["area"] == pytest.approx(area)
    assert (folder / "p/README.md").read_text(encoding="utf-8").startswith("# Plan: ")


def test_the_choice_has_the_largest_mean_area_of_those_not_below_random(crossfade, folder):
    plan = json.loads(crossfade("plan", "mine", "held.npz", *QUICK, "--json", "-").out)
    areas = {
        (c["order"], c["blend"]): np.array(list(c["area"].values())) for c in plan["candidates"]
    }
    fair = {name: a.mean() for name, a in areas.items() if (a >= areas["random", 1.0]).all()}
    assert max(fair, key=fair.get) == (plan["order"], plan["blend"])


@pytest.mark.parametrize("order", ["far-mse", "random", "alignment-error", "near-mse+random"])
def test_a_gallery_is_ordered_as_the_plan_says(crossfade, folder, order):
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--order", order, "--blend", "1",
        "--gallery", "gallery.npy", "--gallery-ids", "ids.npy",
        "--gallery-labels", "gallery_labels.npy",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    found = pq.read_table("p/order.parquet")["id"].to_numpy()
    ids = np.load("ids.npy")
    assert sorted(found.tolist()) == sorted(ids.tolist())
    if "+" in order:
        return
    upgrade, old = Upgrade.load("mine"), np.load("gallery.npy")
    items = Items(ids, old, upgrade.forward(old), np.load("gallery_labels.npy"))
    loaded = load_plan(folder / "p", upgrade)
    rule = loaded.alignment if order == "alignment-error" else ORDERS[order]
    place = positions(rule(items, Groups.of_classes([items], classes=6)), ids)
    assert found.tolist() == ids[np.argsort(place)].tolist()


def test_the_pairs_of_the_fit_are_planned_on_their_validation_rows(crossfade, folder):
    ran = crossfade("plan", "mine", "fitted.npz", "-o", "p", *QUICK)
    assert ran.code == 0, ran.err
    assert "simulated on its 60 validation rows" in " ".join(ran.err.split())
    assert json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))["gallery"] == 60


def test_a_plan_for_another_upgrade_is_refused(crossfade, folder, made):
    assert crossfade("plan", "mine", "held.npz", "-o", "p", *QUICK).code == 0
    other = Upgrade(solver="closed_form").fit(*made(seed=3))
    with pytest.raises(BadInput, match=r"was made for upgrade [0-9a-f]{12}, and this one is"):
        load_plan(folder / "p", other)
    with pytest.raises(BadInput, match="is not a plan"):
        load_plan(folder / "mine")
    (folder / "p/plan.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="is damaged"):
        load_plan(folder / "p")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mixed.npz"], "of these pairs were fitted on, and a plan made on them would promise"),
        (["held.npz", "--budget", "1.5"], "a budget of 1.5 → use a share from 0 to 1"),
        (["held.npz", "--order", "alphabetic"], "there is no order 'alphabetic'"),
        (["held.npz", "--order", "priority"], "the items have no priorities"),
        (["held.npz", "--blend", "2"], "a blend of 2.0"),
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
    before = {path.name for path in folder.iterdir()}
    ran = crossfade("plan", "mine", *arguments, *([] if "--blend" in arguments else QUICK))
    assert ran.code == 2, (ran.out, ran.err)
    assert message in " ".join(ran.err.split())
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gallery-labels", "short.npy"], "there are 5 labels for 600 rows"),
        (["--gallery-ids", "twice.npy"], "an id is given twice"),
        ([], "the plan's order goes by class, and the gallery has no labels"),
    ],
)
def test_a_gallery_that_does_not_fit_is_refused(crossfade, folder, arguments, message):
    np.save("short.npy", np.zeros(5, int))
    np.save("twice.npy", np.zeros(600, int))
    data = ["held.npz", "-o", "p", "--order", "far-mse", "--blend", "1", "--gallery", "gallery.npy"]
    ran = crossfade("plan", "mine", *data, *arguments)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert not (folder / "p/order.parquet").exists()
