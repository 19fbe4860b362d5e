"""Lookups on a whole store, against a ranking made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lookups import models
from tests.stores.apps import LanceApp

from crossfade import Upgrade, evaluate, evaluate_on_store, open_store, read_held, sample_pairs
from crossfade.errors import BadInput

STORED = ("old/old", "new/old", "F(old)/old", "F(old)/F(old)", "B(new)/F(old)", "B(new)/old")


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def made(place, path, **options):
    """Pairs, an upgrade of them, and what is held out of it."""
    options = {"rows": 200, "held": 100, "lookups": 60, "embed_old": models.old} | options
    sample_pairs(place, path, embed=models.new, source="body", **options)
    with np.load(path) as arrays:
        upgrade = Upgrade(solver="closed_form").fit(arrays["old"], arrays["new"])
    return upgrade, read_held(path)


def on_store(place, upgrade, held, **options):
    store = open_store(place)
    try:
        sample = evaluate(upgrade, held, resamples=100, **options)
        return evaluate_on_store(upgrade, held, store, sample, resamples=100)
    finally:
        store.close()


def test_ranks_are_those_of_a_brute_force_over_every_row(app, texts, tmp_path):
    upgrade, held = made(app.address, tmp_path / "pairs.npz")
    found = on_store(app.address, upgrade, held, metrics=["mrr@10", "cmc@1", "ndcg@10"])
    stored = app.old()
    keys = sorted(stored)
    gallery = np.array([stored[key] for key in keys], np.float64)
    with np.load(tmp_path / "pairs.npz") as arrays:
        wanted = arrays["held_ids"][arrays["lookup_items"]].tolist()
        asked = {"old": arrays["lookup_old"], "new": arrays["lookup_new"]}
    sides = {"old": gallery, "F(old)": upgrade.forward(gallery)}
    queries = asked | {
        "F(old)": upgrade.forward(asked["old"]),
        "B(new)": upgrade.backward(asked["new"]),
    }
    assert tuple(found.cases) == (*STORED, "both/old", "blend/old")

    def products(q, g):
        dim = min(q.shape[1], g.shape[1])
        return unit(q[:, :dim].astype(np.float64)) @ unit(g[:, :dim].astype(np.float64)).T

    def crowd(rows):
        nearest = np.sort(products(rows, held.gallery_old), axis=1)
        return nearest[:, -11:-1].mean(axis=1)

    def z(q, less=0.0):
        known = products(q, held.gallery_old) - less * crowd(held.gallery_old)
        found = products(q, gallery) - less * crowd(gallery)
        return (found - known.mean(1, keepdims=True)) / known.std(1, keepdims=True)

    dim = gallery.shape[1]
    mixed = 0.3 * unit(queries["B(new)"][:, :dim]) + 0.7 * unit(asked["old"])
    by_hand = {
        "both/old": 0.7 * z(asked["old"]) + 0.3 * z(queries["B(new)"], less=0.5),
        "blend/old": products(mixed, gallery),
    }
    for case in (*STORED, *by_hand):
        if case in by_hand:
            scores = by_hand[case]
        else:
            scores = products(queries[case.split("/")[0]], sides[case.split("/")[1]])
        own = scores[np.arange(len(wanted)), [keys.index(key) for key in wanted]]
        ranks = (scores >= own[:, None] - 1e-6).sum(axis=1)
        np.testing.assert_array_equal(found.cases[case].values["cmc@1"], ranks == 1)
        reciprocal = np.where(ranks <= 10, 1 / ranks, 0)
        np.testing.assert_allclose(found.cases[case].values["mrr@10"], reciprocal)
        gain = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
        np.testing.assert_allclose(found.cases[case].values["ndcg@10"], gain)
    assert found.data["gallery"] == len(keys)
    # More distractors can only take ranks away from what held rows alone leave.
    assert found.sample.data["gallery"] == 100
    for case in STORED:
        on_held, on_all = (x.cases[case].values["mrr@10"] for x in (found.sample, found))
        assert (on_all <= on_held + 1e-12).all()
    assert found.means()["old/old"]["mrr@10"] < found.sample.means()["old/old"]["mrr@10"]
    assert found.verdicts["new/old"].word == "not compatible"
    assert any("up to 50% of the rows were fitted on" in text for text in found.warnings)


@pytest.fixture
def plain(tmp_path):
    app = LanceApp(tmp_path)
    texts = models.texts_of(300)
    app.create(list(range(300)), texts, [0] * 300, models.old(texts))
    return app


def test_twins_of_the_wanted_rows_are_counted_ahead_of_them(plain, tmp_path):
    upgrade, held = made(plain.address, tmp_path / "pairs.npz", rows=100)
    before = on_store(plain.address, upgrade, held, metrics=["cmc@1"])
    wanted = held.gallery_ids[held.relevance.block(0, held.queries).items]
    texts = models.texts_of(300)
    twins = models.old([texts[key] for key in wanted.tolist()])
    count = len(wanted)
    plain.insert(list(range(1000, 1000 + count)), ["twin"] * count, [0] * count, twins)
    after = on_store(plain.address, upgrade, held, metrics=["cmc@1"])
    for case in STORED:
        assert after.means()[case]["cmc@1"] == 0
    assert before.means()["F(old)/F(old)"]["cmc@1"] > 0


def test_wanted_rows_that_have_gone_or_changed_are_left_out(plain, tmp_path):
    upgrade, held = made(plain.address, tmp_path / "pairs.npz")
    first, second, third = held.gallery_ids[held.relevance.block(0, 3).items].tolist()
    plain.delete(first)
    plain.change(second, "another text", models.old(["another text"])[0])
    plain.empty(third)
    found = on_store(plain.address, upgrade, held)
    assert found.data["queries_with_nothing_relevant"] == 3
    assert found.data["evaluated_queries"] == 57
    assert found.data["gallery"] == 298
    assert any("3 lookups are left out" in text for text in found.warnings)


def test_without_old_queries_new_ones_are_shown_and_nothing_is_judged(plain, tmp_path):
    upgrade, held = made(plain.address, tmp_path / "pairs.npz", embed_old=None)
    found = on_store(plain.address, upgrade, held)
    assert tuple(found.cases) == ("new/old", "B(new)/F(old)", "B(new)/old")
    assert tuple(found.sample.cases) == (
        *("new/old", "new/new", "B(new)/F(old)", "B(new)/old"),
        "B(new)/B(new)",
    )
    for one in (found, found.sample):
        assert not one.judged
        assert {verdict.word for verdict in one.verdicts.values()} == {"not judged"}
        assert one.failed == ("B(new)/F(old)", "B(new)/old")
        assert any("old/old cannot be measured" in text for text in one.warnings)


def test_what_is_not_the_store_of_the_lookups_is_refused(plain, tmp_path):
    upgrade, held = made(plain.address, tmp_path / "pairs.npz")
    texts = models.texts_of(100, seed=5)
    (tmp_path / "other").mkdir()
    other = LanceApp(tmp_path / "other")
    other.create(list(range(100)), texts, [0] * 100, models.old(texts))
    with pytest.raises(BadInput, match="none of the 60 rows that lookups want"):
        on_store(other.address, upgrade, held)
    (tmp_path / "wide").mkdir()
    wide = LanceApp(tmp_path / "wide")
    wide.create(list(range(100)), texts, [0] * 100, models.new(texts))
    with pytest.raises(BadInput, match="24 dimensions, and the upgrade's old model 12"):
        on_store(wide.address, upgrade, held)
    sample_pairs(
        plain.address, tmp_path / "no.npz", embed=models.new, source="body", held=90, rows=100,
        lookups=0,
    )  # fmt: skip
    with pytest.raises(BadInput, match="has no lookups"):
        on_store(plain.address, upgrade, read_held(tmp_path / "no.npz"))
    with pytest.raises(BadInput, match="agreement is with the new model's neighbours"):
        on_store(plain.address, upgrade, held, metrics=["agreement@1"])
