"""`crossfade plan --gallery`: the order of a real gallery, and galleries that do not fit."""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.cli.plan.conftest import QUICK

from crossfade import Upgrade
from crossfade.backfill import ORDERS, Groups, Items, positions, rows
from crossfade.backfill.orders import order_named
from crossfade.backfill.plan import Plan


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
    loaded = Plan.load(folder / "p", upgrade)
    rule = order_named(order, loaded.learned)
    place = positions(rule(items, Groups.of_classes([items], classes=6)), ids)
    assert found.tolist() == ids[np.argsort(place)].tolist()


LABELS = ["--gallery-labels", "gallery_labels.npy"]
BAD_GALLERIES = [
    (["--gallery-labels", "short.npy"], "there are 5 labels for 600 rows"),
    (["--gallery-ids", "twice.npy"], "an id is given twice (0)"),
    (["--gallery-ids", "short.npy"], "there are 5 ids for 600 rows"),
    (["--gallery-priority", "short.npy"], "there are 5 priorities for 600 rows"),
    (["--gallery-labels", "others.npy"], "none of its classes (100, 101, 102"),
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
    np.save("wide.npy", np.ones((600, 9)))
    np.save("p.npy", np.ones(300))
    return folder


@pytest.mark.parametrize(("arguments", "message"), BAD_GALLERIES)
def test_a_gallery_that_does_not_fit_is_refused_before_anything_is_simulated(
    crossfade, bad_galleries, monkeypatch, arguments, message
):
    def never(*_, **__):
        raise AssertionError("simulated")

    monkeypatch.setattr(sys.modules["crossfade.backfill.planning"], "simulate", never)
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
    words = ["--direction", "forward"]
    assert crossfade("apply", "mine", "gallery.npy", "lifted.safetensors", *words).code == 0
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


def test_a_class_that_the_plan_does_not_know_has_a_mean_of_its_own(crossfade, folder):
    labels = np.load("gallery_labels.npy")
    np.save("more.npy", np.where(labels == 5, 77, labels))
    words = ["--order", "far-mse", "--blend", "1", "--gallery", "gallery.npy"]
    orders = []
    for name in ("gallery_labels", "more"):
        ran = crossfade(
            "plan", "mine", "held.npz", "-o", name, *words, "--gallery-labels", f"{name}.npy"
        )
        assert ran.code == 0, ran.err
        orders.append(pq.read_table(f"{name}/order.parquet")["id"].to_pylist())
    # The same items make the same means, whatever their class is called.
    assert orders[0] == orders[1]
    assert "1 of the gallery's 6 classes is unknown to the plan" in " ".join(ran.err.split())


@pytest.mark.parametrize("order", ["far-mse", "far-cosine", "small-margin"])
def test_a_lifted_gallery_of_float16_is_ordered_in_small_parts(
    crossfade, folder, monkeypatch, order
):
    monkeypatch.setattr(rows, "_CLOSE_BYTES", 1000)
    np.save("narrow.npy", np.load("gallery.npy").astype(np.float16))
    words = ["--direction", "forward"]
    assert crossfade("apply", "mine", "narrow.npy", "lifted.safetensors", *words).code == 0
    words = ["--blend", "1", "--gallery", "lifted.safetensors", *LABELS]
    ran = crossfade("plan", "mine", "held.npz", "-o", "p", "--order", order, *words)
    assert ran.code == 0, ran.err
    lifted = load_file("lifted.safetensors")["vector"]
    assert lifted.dtype == np.float16
    lifted = lifted.astype(np.float32)
    items = Items(np.arange(600), lifted, lifted, np.load("gallery_labels.npy"))
    place = positions(ORDERS[order](items, Groups.of_classes([items], classes=6)), items.ids)
    found = pq.read_table("p/order.parquet")["id"].to_numpy()
    assert found.tolist() == np.argsort(place).tolist()


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
    loaded = Plan.load(folder / "p", upgrade)
    assert (loaded.record.groups, loaded.record.classes) == ("clusters", None)
    lifted = upgrade.forward(old)
    gaps = ((lifted[:, None] - loaded.groups.means[None]) ** 2).mean(axis=2).min(axis=1)
    found = pq.read_table("p/order.parquet")["id"].to_numpy()
    assert sorted(found.tolist()) == list(range(600))
    assert (np.diff(gaps[found]) < 1e-6).all()
