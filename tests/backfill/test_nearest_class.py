"""An order by class of a gallery without labels: the plan's class means stand in for them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr

from crossfade import Upgrade
from crossfade.backfill.gallery import notes_on
from crossfade.backfill.gallery_file import NEAREST
from crossfade.backfill.plan import Plan

CLASS_ORDERS = ["far-mse", "far-cosine", "near-mse", "small-margin"]


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """Pairs to fit and to plan on, and a gallery; all have the same six classes."""
    monkeypatch.chdir(tmp_path)
    old, new, labels = made(rows=1200, noise=0.5)
    Upgrade(solver="closed_form").fit(old[:300], new[:300], labels[:300]).save("mine")
    np.savez("held.npz", old=old[300:600], new=new[300:600], labels=labels[300:600])
    np.save("gallery.npy", old[600:])
    np.save("gallery_labels.npy", labels[600:])
    return tmp_path


@pytest.fixture
def ordered(crossfade, folder):
    """Plans with one order, and gives the gallery's rows in it, the warnings and the plan."""

    def run(order, *more):
        words = ["-o", "p", "--overwrite", "--order", order, "--blend", "1"]
        ran = crossfade("plan", "mine", "held.npz", *words, "--gallery", "gallery.npy", *more)
        assert ran.code == 0, ran.err
        plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
        rows = pq.read_table("p/order.parquet")["id"].to_numpy()
        return rows, plan["warnings"], " ".join(ran.err.split())

    return run


def urgencies(order: str, x: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Every item against every mean, in float64."""
    gaps = ((x[:, None] - means[None]) ** 2).sum(axis=2)
    near = np.sort(gaps, axis=1)
    own = means[gaps.argmin(axis=1)]
    cosines = (x * own).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(own, axis=1)
    return {
        "far-mse": near[:, 0],
        "near-mse": -near[:, 0],
        "far-cosine": 1 - cosines,
        "small-margin": near[:, 0] - near[:, 1],
    }[order]


@pytest.mark.parametrize("order", CLASS_ORDERS)
def test_the_order_is_that_of_the_nearest_means_of_the_plan(ordered, folder, order):
    rows, warnings, said = ordered(order)
    upgrade = Upgrade.load("mine")
    with np.load("held.npz") as held:
        lifted = upgrade.forward(held["old"]).astype(np.float64)
        means = np.stack([lifted[held["labels"] == c].mean(axis=0) for c in range(6)])
    found = urgencies(order, upgrade.forward(np.load("gallery.npy")).astype(np.float64), means)
    assert sorted(rows.tolist()) == list(range(600))
    assert (np.diff(found[rows]) <= 1e-5).all()
    assert NEAREST in warnings
    assert f"warning: {NEAREST}" in said
    assert notes_on(folder / "p/order.parquet") == [NEAREST]


@pytest.mark.parametrize("order", CLASS_ORDERS)
def test_it_is_close_to_the_order_with_labels(ordered, order):
    without, _, _ = ordered(order)
    labelled, warnings, said = ordered(order, "--gallery-labels", "gallery_labels.npy")
    assert NEAREST not in warnings
    assert NEAREST not in said
    places = [np.argsort(rows) for rows in (without, labelled)]
    assert spearmanr(*places).statistic > 0.6


def test_orders_that_go_by_no_class_have_no_such_note(ordered, folder):
    _, warnings, _ = ordered("random")
    assert NEAREST not in warnings
    assert notes_on(folder / "p/order.parquet") == []


def test_a_class_that_only_queries_have_is_nobodys_nearest(crossfade, folder):
    """Its mean would be that of no items."""
    with np.load("held.npz") as held:
        gallery = held["labels"] != 0
        for name, rows in (("items", gallery), ("queries", slice(None))):
            np.savez(f"{name}.npz", **{k: held[k][rows] for k in ("old", "new", "labels")})
    ran = crossfade(
        "plan", "mine", "items.npz", "--queries", "queries.npz", "-o", "p", "--order", "far-mse",
        "--blend", "1", "--gallery", "gallery.npy",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    groups = Plan.load(folder / "p").groups
    assert groups.present.tolist() == [False, True, True, True, True, True]
    lifted = Upgrade.load("mine").forward(np.load("gallery.npy")).astype(np.float64)
    rows = pq.read_table("p/order.parquet")["id"].to_numpy()
    assert (np.diff(urgencies("far-mse", lifted, groups.means[1:])[rows]) <= 1e-5).all()
