"""`crossfade plan`: its folder, the order of a gallery, and its refusals."""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from crossfade import Upgrade
from crossfade.backfill import ORDERS, Groups, Items, positions
from crossfade.backfill.blend import stored
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


LABELS = ["--gallery-labels", "gallery_labels.npy"]
BAD_GALLERIES = [
    (["--gallery-labels", "short.npy"], "there are 5 labels for 600 rows"),
    (["--gallery-ids", "twice.npy"], "an id is given twice (0)"),
    (["--gallery-ids", "short.npy"], "there are 5 ids for 600 rows"),
    (["--gallery-priority", "short.npy"], "there are 5 priorities for 600 rows"),
    (["--gallery-labels", "others.npy"], "none of its classes (100, 101, 102"),
    (["--gallery-labels", "more.npy"], "1 of its 6 classes is unknown to the plan (77)"),
    (["--gallery", "wide.npy"], "'vector' has dimension 9, and the upgrade's old vectors have 6"),
    (["--gallery", "missing.npy"], "missing.npy"),
    (["--order", "priority", "--priority", "p.npy", *LABELS], "goes by priority, and the gallery"),
]


@pytest.fixture
def bad_galleries(folder):
    labels = np.load("gallery_labels.npy")
    np.save("short.npy", np.zeros(5, int))
    np.save("twice.npy", np.zeros(600, int))
    np.save("others.npy", labels + 100)
    np.save("more.npy", np.where(labels == 5, 77, labels))
    np.save("wide.npy", np.ones((600, 9)))
    np.save("p.npy", np.ones(300))
    return folder


@pytest.mark.parametrize(("arguments", "message"), BAD_GALLERIES)
def test_a_gallery_that_does_not_fit_is_refused_before_anything_is_simulated(
    crossfade, bad_galleries, monkeypatch, arguments, message
):
    def never(*_, **__):
        raise AssertionError("simulated")

    monkeypatch.setattr(sys.modules["crossfade.cli.plan"], "simulate", never)
    data = ["held.npz", "-o", "p", "--order", "far-mse", "--blend", "1", "--gallery", "gallery.npy"]
    ran = crossfade("plan", "mine", *data, *arguments)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert not (bad_galleries / "p").exists()


def test_a_bad_row_found_while_ordering_leaves_no_folder(crossfade, folder):
    old = np.load("gallery.npy")
    old[123, 2] = np.nan
    np.save("gallery.npy", old)
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--order", "alignment-error", "--blend", "1",
        "--gallery", "gallery.npy",
    )  # fmt: skip
    assert ran.code == 2
    assert "row 123" in ran.err
    assert not (folder / "p").exists()
    assert not [path for path in folder.iterdir() if "tmp" in path.name]


def test_classes_of_the_plan_that_the_gallery_lacks_are_worth_a_note(crossfade, folder):
    old, labels = np.load("gallery.npy"), np.load("gallery_labels.npy")
    np.save("some.npy", old[labels != 4])
    np.save("some_labels.npy", labels[labels != 4])
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--order", "small-margin", "--blend", "1",
        "--gallery", "some.npy", "--gallery-labels", "some_labels.npy",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "1 of the plan's 6 classes is not in the gallery (4)" in " ".join(ran.err.split())
    assert len(pq.read_table("p/order.parquet")) == (labels != 4).sum()


def test_orders_that_the_gallery_has_nothing_for_are_not_tried(crossfade, folder):
    ran = crossfade("plan", "mine", "held.npz", "-o", "p", *QUICK, "--gallery", "gallery.npy")
    assert ran.code == 0, ran.err
    plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
    assert {c["order"] for c in plan["candidates"]} == {"random", "alignment-error"}
    assert "not tried: far-mse, far-cosine, near-mse, small-margin" in " ".join(ran.err.split())


def test_ids_may_be_strings(crossfade, folder):
    names = np.array([f"item-{i:03d}" for i in range(600)])
    np.save("names.npy", names)
    for order in ("random", "near-mse"):
        ran = crossfade(
            "plan", "mine", "held.npz", "-o", order, "--order", order, "--blend", "1",
            "--gallery", "gallery.npy", "--gallery-ids", "names.npy",
            "--gallery-labels", "gallery_labels.npy",
        )  # fmt: skip
        assert ran.code == 0, ran.err
    by_name, by_number = (pq.read_table(f"{o}/order.parquet")["id"] for o in ("random", "near-mse"))
    assert sorted(by_name.to_pylist()) == sorted(by_number.to_pylist()) == names.tolist()
    upgrade, old = Upgrade.load("mine"), np.load("gallery.npy")
    items = Items(np.arange(600), old, upgrade.forward(old), np.load("gallery_labels.npy"))
    place = positions(ORDERS["near-mse"](items, Groups.of_classes([items], classes=6)), items.ids)
    assert by_number.to_pylist() == names[np.argsort(place)].tolist()


def test_a_gallery_that_is_lifted_already_gives_the_same_order(crossfade, folder, made):
    np.savez("old.npz", vector=np.load("gallery.npy"))
    assert crossfade("apply", "mine", "gallery.npy", "lifted.safetensors", "--direction", "forward")
    words = ["--order", "small-margin", "--blend", "1", "--gallery-labels", "gallery_labels.npy"]
    for name in ("gallery.npy", "lifted.safetensors"):
        target = name.split(".")[0]
        ran = crossfade("plan", "mine", "held.npz", "-o", target, *words, "--gallery", name)
        assert ran.code == 0, ran.err
    first, second = (pq.read_table(f"{n}/order.parquet")["id"] for n in ("gallery", "lifted"))
    assert first == second
    lifted = ["--gallery", "lifted.safetensors", "-o", "x", "--blend", "1"]
    ran = crossfade("plan", "mine", "held.npz", *lifted, "--order", "alignment-error")
    assert ran.code == 2
    assert "alignment-error goes by old vectors, and these are lifted" in " ".join(ran.err.split())
    Upgrade(solver="closed_form", seed=4).fit(*made(seed=3)).save("other")
    ran = crossfade("plan", "other", "held.npz", *lifted, "--order", "random")
    assert ran.code == 2
    assert "was mapped forward by upgrade" in " ".join(ran.err.split())


@pytest.mark.parametrize("start", ["old", "states.npy"])
def test_a_plan_may_start_from_a_gallery_that_is_not_lifted(crossfade, folder, start):
    np.save("states.npy", np.array(["old", "lifted", "filled"] * 100))
    words = ["--order", "random", "--blend", "1", "--json", "-"]
    lifted = json.loads(crossfade("plan", "mine", "held.npz", "-o", "a", *words).out)
    other = json.loads(
        crossfade("plan", "mine", "held.npz", "-o", "b", *words, "--start", start).out
    )
    assert (lifted["start"], other["start"]) == ("lifted", start)
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


def test_a_plan_holds_what_carrying_it_out_needs(crossfade, folder):
    ran = crossfade(
        "plan", "mine", "held.npz", "-o", "p", "--order", "small-margin", "--blend", "1.2:0.2",
        "--volume", "0.8:1",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    upgrade = Upgrade.load("mine")
    loaded = load_plan(folder / "p", upgrade)
    plan = loaded.plan
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


def test_a_plan_whose_quiet_direction_is_gone_is_damaged(crossfade, folder):
    words = ["--order", "random", "--blend", "1", "--volume", "0.8:1"]
    assert crossfade("plan", "mine", "held.npz", "-o", "p", *words).code == 0
    tensors = load_file("p/order.safetensors")
    save_file({k: v for k, v in tensors.items() if "quiet" not in k}, "p/order.safetensors")
    with pytest.raises(BadInput, match="is damaged"):
        load_plan(folder / "p")


def test_a_plan_by_qrels_orders_a_gallery_without_labels_by_clusters(crossfade, folder):
    with np.load("held.npz") as held:
        rng = np.random.default_rng(0)
        qrels = np.stack([np.arange(200), rng.integers(200, 300, 200)], axis=1)
        np.savez("judged.npz", old=held["old"], new=held["new"], qrels=qrels)
    ran = crossfade(
        "plan", "mine", "judged.npz", "-o", "p", "--order", "far-mse", "--blend", "1",
        "--optimize", "ndcg@10", "--gallery", "gallery.npy",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    upgrade, old = Upgrade.load("mine"), np.load("gallery.npy")
    loaded = load_plan(folder / "p", upgrade)
    assert (loaded.plan.groups, loaded.plan.classes) == ("clusters", None)
    lifted = upgrade.forward(old)
    gaps = ((lifted[:, None] - loaded.groups.means[None]) ** 2).mean(axis=2).min(axis=1)
    found = pq.read_table("p/order.parquet")["id"].to_numpy()
    assert sorted(found.tolist()) == list(range(600))
    assert (np.diff(gaps[found]) < 1e-6).all()
