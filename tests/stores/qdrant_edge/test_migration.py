"""A migration on Qdrant's engine from start to end, with rows that come and change."""

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
    unit,
    upgrade_folder,  # noqa: F401
)
from tests.migration.conftest import world as make_world

from crossfade import Searcher
from crossfade.migration import Migration

world = make_world


@pytest.fixture
def migration(world):
    made = Migration(world.app.address, world.folder)
    yield made
    made.close()


def test_the_whole_way(world, migration, plan_folder):  # noqa: F811
    app = world.app
    migration.start(source="body", force=True)
    migration.forward(size=100)
    late, changed = "jklmnopqrstuvwxy", "bcdefghijklmnopq"
    app.insert([1000], [late], [0], world.models.old([late]))
    app.change(4, changed, world.models.old([changed])[0])
    app.delete(5)
    searcher = Searcher(app.address, world.upgrade, refresh=0.0)
    query = lifted_of(world, [late])[0]
    assert 1000 in [hit.id for hit in searcher.search(query, 3, ask="new")]
    migration.forward()
    embedder = Function(world.models)
    migration.backfill(embedder, plan=plan_folder, share=0.3)
    assert migration.verify().passed
    before = shared_of(migration)
    texts = world.texts | {1000: late, 4: changed}
    migration.finish(force=True)
    kept = app.old()
    assert sorted(kept) == sorted({*texts} - {5})
    for key, (state, _) in before.items():
        text = [texts[key]]
        wanted = lifted_of(world, text) if state == "lifted" else filled_of(world, text, 0.7)
        np.testing.assert_allclose(kept[key], unit(wanted)[0], atol=1e-4)
    plain = world.models.new(["abcdefghijklmnop"])
    app.insert([2000], ["abcdefghijklmnop"], [0], plain)
    assert [hit.id for hit in searcher.search(plain[0], 1)] == [2000]
    assert app.payloads()[7] == {"body": texts[7], "kind": ord(texts[7][0])}
    searcher.store.close()


def test_a_rollback_leaves_what_was_there(world, migration):
    before, payloads = world.app.old(), world.app.payloads()
    migration.start(source="body", force=True)
    migration.forward()
    migration.rollback()
    after = world.app.old()
    assert all(np.array_equal(after[key], before[key]) for key in before)
    assert world.app.payloads() == payloads
