"""A plan on a whole store, against the same plan on a gallery that both models have embedded."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from tests.lookups import models
from tests.stores.apps import LanceApp

from crossfade import Upgrade, open_store, plan, plan_on_store, read_held, sample_pairs
from crossfade.backfill.choose import choose
from crossfade.backfill.plan import Plan
from crossfade.backfill.simulate import simulate
from crossfade.compatibility.held import Held
from crossfade.errors import BadInput
from crossfade.retrieval.relevance import from_qrels

ROWS = 1500
METRICS = ["ndcg@10"]
WAYS = ["new", "both"]
FEW = {"optimize": METRICS, "orders": ["random"], "blends": [1.0]}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A store, an upgrade, what is held of it, and a plan of that."""
    folder = tmp_path_factory.mktemp("store")
    app, texts = LanceApp(folder), models.texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    path = folder / "pairs.npz"
    options = {"rows": 300, "held": 400, "lookups": 300, "source": "body"}
    sample_pairs(app.address, path, embed=models.new, embed_old=models.old, **options)
    with np.load(path) as arrays:
        upgrade = Upgrade(solver="closed_form").fit(arrays["old"], arrays["new"])
    held = read_held(path)
    return app, upgrade, held, plan(upgrade, held, **FEW, ask=WAYS)


def on_store(app, upgrade, held, made, **options):
    with closing(open_store(app.address)) as store:
        return plan_on_store(upgrade, held, store, made, **options)


def whole(held):
    """The same lookups on every row, which the new model has embedded for once."""
    texts = models.texts_of(ROWS)
    items = held.gallery_ids[held.relevance.block(0, held.queries).items]
    qrels = np.stack([np.arange(held.queries), items], axis=1)
    relevance = from_qrels(qrels, held.queries, ROWS)
    return Held(
        "all", models.old(texts), models.new(texts), held.query_old, held.query_new, None,
        relevance, "lookups", gallery_ids=np.arange(ROWS),
    )  # fmt: skip


def truth(upgrade, held, order="random"):
    given = {"orders": [order], "blends": [1.0], "metrics": METRICS, "asking": WAYS}
    found = simulate(upgrade, whole(held), **given)
    return choose(found, METRICS)


def test_what_is_known_is_exact_and_what_is_made_up_is_near(scene):
    app, upgrade, held, made = scene
    found = on_store(app, upgrade, held, made)
    true = truth(upgrade, held)
    assert found.record.gallery == ROWS
    few, many = (p.made.choice.qualities["ndcg@10"] for p in (made, found))
    # Old vectors are all there: today's search is what it is.
    assert many["old/old"] == pytest.approx(true.qualities["ndcg@10"]["old/old"], abs=0.01)
    assert few["old/old"] > many["old/old"] + 3
    # Fewer distractors flatter, at every share; with made-up vectors it is near the true curve.
    curves = [p.made.choice.curve.means("ndcg@10") for p in (made, found)]
    curves.append(true.curve.means("ndcg@10"))
    assert (curves[0] > curves[1]).all()
    assert np.abs(curves[1] - curves[2]).mean() < 0.5 * np.abs(curves[0] - curves[2]).mean()
    # Before anything is filled, it is the very number.
    assert found.record.asking == true.best.asking == "both"
    assert curves[1][0] == pytest.approx(curves[2][0], abs=0.7)
    assert many["new/new"] == pytest.approx(true.qualities["ndcg@10"]["new/new"], abs=4.0)


def test_new_queries_alone_begin_at_what_every_lifted_row_gives(scene):
    app, upgrade, held, _ = scene
    alone = plan(upgrade, held, **FEW, ask=["new"])
    found = on_store(app, upgrade, held, alone)
    gallery = upgrade.forward(models.old(models.texts_of(ROWS)))
    scores = upgrade.backward(held.query_new) @ gallery.T
    wanted = held.gallery_ids[held.relevance.block(0, held.queries).items]
    own = scores[np.arange(len(wanted)), wanted]
    ranks = (scores >= own[:, None] - 1e-6).sum(axis=1)
    expected = 100 * np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean()
    assert found.record.curve["ndcg@10"][0] == pytest.approx(expected, abs=1e-6)


def test_a_plan_on_a_store_is_written_and_read_like_any_other(scene, tmp_path):
    app, upgrade, held, made = scene
    found = on_store(app, upgrade, held, made)
    found.save(tmp_path / "plan")
    read = Plan.load(tmp_path / "plan", upgrade).record
    assert read.store == str(app.address)
    assert read.sample["gallery"] == 400
    assert read.sample["curve"]["ndcg@10"] == made.record.curve["ndcg@10"]
    assert any("is made up after held ones" in text for text in read.warnings)
    with pytest.raises(BadInput, match="was read from a folder"):
        on_store(app, upgrade, held, Plan.load(tmp_path / "plan"))


def test_orders_that_look_at_vectors_place_every_row(scene):
    app, upgrade, held, _ = scene
    made = plan(upgrade, held, optimize=METRICS, orders=["far-mse"], blends=[1.0], ask=WAYS)
    found = on_store(app, upgrade, held, made)
    true = truth(upgrade, held, "far-mse")
    curves = [p.made.choice.curve.means("ndcg@10") for p in (made, found)]
    curves.append(true.curve.means("ndcg@10"))
    assert np.abs(curves[1] - curves[2]).mean() < 0.5 * np.abs(curves[0] - curves[2]).mean()


def test_lookups_of_another_store_are_refused(scene, tmp_path):
    _, upgrade, held, made = scene
    other = LanceApp(tmp_path)
    texts = models.texts_of(50, seed=9)
    other.create(list(range(50)), texts, [0] * 50, models.old(texts))
    with pytest.raises(BadInput, match="has none of the 300 rows that lookups want"):
        on_store(other, upgrade, held, made)
    starts_old = plan(upgrade, held, **FEW, start="old")
    with pytest.raises(BadInput, match="starts from lifted rows"):
        on_store(other, upgrade, held, starts_old)
