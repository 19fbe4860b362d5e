"""How a migration ends, on every store: searches while it finishes, rollback from any stage."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, shared_of

from crossfade.errors import BadInput
from crossfade.migration import Wanted
from crossfade.migration.columns import KNOWN, VECTOR
from crossfade.migration.journal import save_journal
from crossfade.stores.rows import matrix


def test_searches_go_on_at_every_moment_of_finish(world, lifted):
    searcher = lifted.searcher(refresh=0)
    text = world.texts[42]
    queries = {"new": world.models.new([text])[0], "old": world.models.old([text])[0]}

    def found():
        return [searcher.search(queries[model], 300, model=model)[0].id for model in queries]

    store, before = lifted.store, found()
    save_journal(store, lifted.journal.after(stage="finishing"))
    while_there = found()
    store.promote(VECTOR, KNOWN)
    promoted = found()
    assert lifted.finish().stage == "finished"
    # Old queries are compared with old vectors before, and through F from then on.
    assert before[0] == while_there[0] == promoted[0] == found()[0]
    assert while_there[1] == promoted[1] == found()[1]


def test_finish_leaves_the_shared_vectors_alone(world, lifted):
    expected = shared_of(lifted)
    query = world.models.new([world.texts[9]])[0]
    before = [hit.id for hit in lifted.searcher().search(query, k=7)]
    assert lifted.finish().stage == "finished"
    assert lifted.finish().stage == "finished"
    store = lifted.store
    assert store.describe().dim == world.upgrade.shared_dim_
    assert store.describe().added == ()
    rows = store.read(list(range(ROWS)), [store.vector])
    for key, vector in zip(rows[store.id].to_pylist(), matrix(rows[store.vector]), strict=True):
        np.testing.assert_allclose(vector, expected[key][1], atol=1e-6)
    assert [hit.id for hit in lifted.searcher().search(query, k=7)] == before
    with pytest.raises(BadInput, match="rolled back"):
        lifted.rollback()


@pytest.mark.parametrize("stage", ["started", "forward", "backfilling"])
def test_rollback_returns_to_the_old_vectors(world, migration, plan_folder, stage):
    before = world.app.old()
    migration.start(source="body", force=True)
    if stage != "started":
        migration.forward()
    if stage == "backfilling":
        migration.backfill(
            Function(world.models), Wanted(plan=plan_folder, labels="kind", share=0.2)
        )
    assert migration.rollback().stage == "rolled back"
    assert migration.rollback().stage == "rolled back"
    assert migration.store.describe().added == ()
    after = world.app.old()
    assert sorted(after) == sorted(before)
    for key in before:
        np.testing.assert_array_equal(after[key], before[key])
    # New queries go on, on the old vectors; and a new migration may start.
    query = world.models.new([world.texts[5]])[0]
    assert len(migration.searcher().search(query, k=3)) == 3
    migration.start(source="body", force=True)
    assert migration.forward().written == ROWS
