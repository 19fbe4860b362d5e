"""Migrations of a collection from start to end, with an application that goes on writing."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import (
    Function,
    filled_of,
    lifted_of,
    models,  # noqa: F401  (fixtures)
    plan_folder,  # noqa: F401
    shared_of,
    texts_of,
    unit,
    upgrade_folder,  # noqa: F401
)
from tests.migration.conftest import World as Given

from crossfade import Searcher, Upgrade
from crossfade.migration import Migration
from crossfade.stores.registry import kept_value

ROWS = 120


@pytest.fixture
def world(app, models, upgrade_folder):  # noqa: F811
    texts = texts_of(ROWS)
    ids = [app.key(i) for i in range(ROWS)]
    app.create(ids, texts, [ord(text[0]) for text in texts], models.old(texts))
    upgrade = Upgrade.load(upgrade_folder)
    return Given(app, models, upgrade_folder, upgrade, dict(zip(ids, texts, strict=True)))


@pytest.fixture
def migration(world):
    made = Migration(world.app.address, world.folder)
    yield made
    made.close()


def test_the_whole_way(world, migration, plan_folder):  # noqa: F811
    app, texts = world.app, world.texts
    migration.start(source="document", force=True)
    migration.forward(size=50)
    found = shared_of(migration)
    assert {state for state, _ in found.values()} == {"lifted"}
    one = texts[app.key(3)]
    np.testing.assert_allclose(found[app.key(3)][1], lifted_of(world, [one])[0], atol=1e-4)
    searcher = Searcher(app.address, world.upgrade)
    hits = searcher.search(lifted_of(world, [one])[0], 3, ask="new", columns=["document"])
    assert app.key(3) in [hit.id for hit in hits]
    assert {hit.values["document"] for hit in hits} <= set(texts.values())
    both = searcher.search(world.models.new([one])[0], 3, old=world.models.old([one])[0])
    assert len(both) == 3
    embedder = Function(world.models)
    migration.backfill(embedder, plan=plan_folder, share=0.5)
    assert set(embedder.asked) <= set(texts)
    assert migration.status().filled == ROWS // 2
    assert migration.verify().passed
    filled = {key: state for key, (state, _) in shared_of(migration).items()}
    migration.finish(force=True)
    assert migration.status().stage == "finished"
    kept = app.old()
    for key, state in filled.items():
        text = [texts[key]]
        wanted = lifted_of(world, text) if state == "lifted" else filled_of(world, text, 0.7)
        np.testing.assert_allclose(kept[key], wanted[0], atol=1e-4)
    # Plain new vectors, in and out.
    plain = world.models.new(["abcdefghijklmnop"])
    app.insert(["plain"], ["abcdefghijklmnop"], [0], plain)
    hits = app.open().query(query_embeddings=plain, n_results=1)
    assert hits["ids"] == [["plain"]]
    assert [hit.id for hit in searcher.search(plain[0], 1)] == ["plain"]
    searcher.store.close()


def test_rows_that_come_change_and_go(world, migration):
    app = world.app
    migration.start(source="document", force=True)
    migration.forward()
    late, changed = texts_of(3, seed=8)[:2]
    app.insert(["late"], [late], [0], world.models.old([late]))
    app.change(app.key(4), changed, world.models.old([changed])[0])
    app.delete(app.key(5))
    searcher = Searcher(app.address, world.upgrade, refresh=0.0)
    query = lifted_of(world, [late])[0]
    assert "late" in [hit.id for hit in searcher.search(query, 3, ask="new")]
    assert migration.status().late == 1
    assert not migration.verify().passed
    migration.forward()
    found = shared_of(migration)
    assert app.key(5) not in found
    for key, text in (("late", late), (app.key(4), changed)):
        np.testing.assert_allclose(found[key][1], lifted_of(world, [text])[0], atol=1e-4)
    app.insert(["later"], [late], [0], world.models.old([late]))
    migration.finish(force=True)
    kept = app.old()
    np.testing.assert_allclose(kept["later"], lifted_of(world, [late])[0], atol=1e-4)
    assert len(kept) == ROWS + 1
    searcher.store.close()


def test_a_rollback_leaves_what_was_there(world, migration, plan_folder):  # noqa: F811
    app = world.app
    before = app.old()
    migration.start(source="document", force=True)
    migration.forward()
    migration.backfill(Function(world.models), plan=plan_folder, share=0.2)
    migration.rollback()
    after = app.old()
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[key], before[key]) for key in before)
    names = [one.name for one in app.client.list_collections()]
    assert [name for name in names if name.endswith(app.name)] == [app.name]
    assert '"rolled back"' in kept_value(app.address, "migration").replace("'", '"')
    # And all of it again.
    again = Migration(app.address, world.folder)
    again.start(source="document", force=True)
    again.forward()
    again.finish(force=True)
    kept = app.old()
    wanted = lifted_of(world, [world.texts[app.key(7)]])[0]
    np.testing.assert_allclose(unit(kept[app.key(7)]), unit(wanted), atol=1e-4)
    again.close()
