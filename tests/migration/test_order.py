"""The order in which a store's rows are filled, where the store has no column of classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, texts_of
from tests.stores.apps import LanceApp

from crossfade.backfill.gallery_file import NEAREST
from crossfade.backfill.plan import Plan
from crossfade.errors import BadInput
from crossfade.migration import Migration
from crossfade.migration.order import read_ids
from crossfade.stores.rows import matrix


@pytest.fixture
def plan(plan_folder, tmp_path):
    """The plan, with no orders made yet."""
    folder = tmp_path / "plan"
    shutil.copytree(plan_folder, folder, ignore=shutil.ignore_patterns("orders"))
    return folder


def order_in(plan) -> list:
    (made,) = plan.glob("orders/*.parquet")
    return [key for ids in read_ids(made) for key in ids]


def test_two_stores_of_one_name_have_orders_of_their_own(
    models, upgrade_folder, plan, tmp_path, monkeypatch
):
    for number, rows in enumerate((40, 60)):
        app = LanceApp(tmp_path / str(number))
        texts = texts_of(rows, seed=number)
        app.create(list(range(rows)), texts, [ord(t[0]) for t in texts], models.old(texts))
        monkeypatch.chdir(tmp_path / str(number) / "db")
        migration = Migration("items.lance", upgrade_folder)
        migration.start(source="body", force=True)
        migration.forward()
        migration.backfill(Function(models), plan=plan, labels="kind", share=1.0)
        order = [k for ids in read_ids(Path(migration.journal.backfill.order_file)) for k in ids]
        assert sorted(order) == list(range(rows))


def test_without_labels_rows_go_by_the_nearest_class_mean_of_the_plan(world, lifted, plan):
    embedder = Function(world.models)
    lifted.backfill(embedder, plan=plan, share=0.4)
    assert lifted.backfill_notes() == [NEAREST]
    store, means = lifted.store, Plan.load(plan).groups.means
    rows = next(store.stream([store.vector]))
    x = world.upgrade.forward(matrix(rows[store.vector])).astype(np.float64)
    nearest = ((x[:, None] - means[None]) ** 2).sum(axis=2).min(axis=1)
    gap = dict(zip(rows[store.id].to_pylist(), nearest, strict=True))
    order = order_in(plan)
    assert sorted(order) == list(range(ROWS))
    # The plan says near-mse.
    assert (np.diff([gap[key] for key in order]) >= -1e-5).all()
    assert sorted(embedder.asked) == sorted(order[: int(0.4 * ROWS)])
    lifted.backfill(embedder, share=0.6)
    assert order_in(plan) == order
    assert lifted.verify(embed=Function(world.models)).passed


def test_labels_given_after_a_dry_run_without_make_the_order_by_class(world, lifted, plan):
    embedder = Function(world.models)
    assert lifted.backfill_outlook(embedder, plan=plan)["warnings"] == [NEAREST]
    without = order_in(plan)
    told = lifted.backfill_outlook(embedder, plan=plan, labels="kind")
    assert told["warnings"] == []
    by_class = order_in(plan)
    assert sorted(by_class) == sorted(without)
    store = lifted.store
    rows = next(store.stream([store.vector, "kind"]))
    kinds = np.array(rows["kind"].to_pylist())
    x = world.upgrade.forward(matrix(rows[store.vector])).astype(np.float64)
    gap = np.empty(ROWS)
    for kind in np.unique(kinds):
        mine = kinds == kind
        gap[mine] = ((x[mine] - x[mine].mean(axis=0)) ** 2).sum(axis=1)
    at = {key: i for i, key in enumerate(rows[store.id].to_pylist())}
    assert (np.diff(gap[[at[key] for key in by_class]]) >= -1e-5).all()
    # Later runs need not name the column again.
    lifted.backfill(embedder, plan=plan, share=0.1)
    assert order_in(plan) == by_class
    assert lifted.backfill_notes() == []


def test_an_order_that_rows_were_filled_by_stays(world, lifted, plan):
    lifted.backfill(Function(world.models), plan=plan, share=0.1)
    before = order_in(plan)
    with pytest.raises(BadInput, match="was begun without labels"):
        lifted.backfill(Function(world.models), plan=plan, labels="kind", share=0.2)
    assert order_in(plan) == before
