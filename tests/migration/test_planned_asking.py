"""A plan that asks both: the searcher follows it, and `finish` waits until new queries do alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, filled_of, shared_of, texts_of, unit

from crossfade.backfill.plan import HASH, PLAN, Plan, content_hash
from crossfade.errors import BadInput, NotProven, StoreError
from crossfade.journal.columns import VECTOR
from crossfade.migration import Migration
from crossfade.stores.rows import matrix


@pytest.fixture
def both_plan(plan_folder, tmp_path):
    """The same plan, as one that asks both and lets the old model go at half of the gallery."""

    def make(asking="both", reaches=0.5, stop=0.3, **more) -> Path:
        import shutil

        folder = tmp_path / f"plan-{asking}-{reaches}"
        shutil.copytree(plan_folder, folder)
        record = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        record.pop(HASH)
        alone = {"reaches": reaches, "at_first": 1.0, "full": 2.0}
        record |= {"asking": asking, "stop": stop, "alone": {"mAP": alone}} | more
        record[HASH] = content_hash(record, folder)
        (folder / PLAN).write_text(json.dumps(record), encoding="utf-8")
        return folder

    return make


def hits(found) -> list:
    return [hit.id for hit in found]


def test_a_searcher_asks_as_the_plan_says(world, lifted, both_plan):
    searcher = lifted.searcher(refresh=0)
    text = texts_of(1, seed=5)
    old, new = world.models.old(text)[0], world.models.new(text)[0]
    answers = {
        way: hits(searcher.search(new, old=old, ask=way)) for way in ("new", "both", "blend")
    }
    assert answers["new"] != answers["both"]
    # Without a plan both models are asked, where both are given.
    assert hits(searcher.search(new, old=old)) == answers["both"]
    for way in ("new", "both", "blend"):
        wanted = {"plan": both_plan(way), "labels": "kind", "share": 0.0}
        lifted.backfill(Function(world.models), **wanted)
        assert lifted.status().asking == way
        assert hits(searcher.search(new, old=old)) == answers[way]
        # One query alone is asked as well as it can be.
        assert hits(searcher.search(new)) == answers["new"]


def test_a_plan_named_at_start_is_followed_from_the_start(world, migration, both_plan):
    migration.start(source="body", plan=both_plan(), force=True)
    found = migration.status()
    assert (found.asking, found.alone_from, found.target) == ("both", 0.5, 0.3)
    assert found.promises.alone == {"mAP": 0.5}


def test_a_searcher_asks_as_the_plan_says_for_the_share_that_is_filled(world, lifted, both_plan):
    plan = both_plan(asked=[[0.0, "both"], [0.5, "new"]])
    text = texts_of(1, seed=5)
    old, new = world.models.old(text)[0], world.models.new(text)[0]
    searcher = lifted.searcher(refresh=0)
    for share, way in ((0.2, "both"), (0.6, "new")):
        lifted.backfill(Function(world.models), plan=plan, labels="kind", share=share)
        found = {w: hits(searcher.search(new, old=old, ask=w)) for w in ("new", "both")}
        assert found["new"] != found["both"]
        assert hits(searcher.search(new, old=old)) == found[way]
        # What is asked for counts more than the plan, and one query is all there is to ask with.
        assert hits(searcher.search(old=old)) == hits(searcher.search(old=old, ask="old"))
        assert lifted.status().asking == way


@pytest.mark.parametrize("error", [StoreError, BadInput])
def test_while_columns_change_places_a_searcher_asks_as_the_plan_did_at_first(
    world, lifted, both_plan, monkeypatch, error
):
    plan = both_plan(asked=[[0.0, "both"], [0.5, "new"]])
    lifted.backfill(Function(world.models), plan=plan, labels="kind", share=0.6)
    searcher = lifted.searcher(refresh=0)
    journal = searcher.stage.journal()
    assert searcher.planned(journal) == "new"

    def gone(*_, **__):
        raise error("has no such column")

    searcher = lifted.searcher(refresh=0)
    monkeypatch.setattr("crossfade.search.searcher.read_sample", gone)
    assert searcher.planned(journal) == "both"
    # Another plan than the journal's is followed in the same way.
    assert searcher.planned(journal, ((0.0, "old"), (0.5, "new"))) == "old"


@pytest.mark.parametrize("lift", [0.0, 0.4])
def test_rows_store_what_the_plan_says_until_they_are_filled(world, migration, both_plan, lift):
    plan = both_plan(lift=lift)
    migration.start(source="body", plan=plan, force=True)
    migration.forward()
    texts = [world.texts[key] for key in range(ROWS)]
    turn = world.upgrade.backward_.map.weight
    old = world.models.old(texts)
    mixed = lift * world.upgrade.forward(old) + (1 - lift) * world.upgrade.in_shared_space(old)
    expected = unit(mixed) @ turn
    stored = shared_of(migration)
    found = np.array([stored[key][1] for key in range(ROWS)])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert migration.status().lift == lift
    # A row that comes is found as it will be stored, and `verify` knows what to expect.
    more = texts_of(1, seed=6)
    world.app.insert([9000], more, [0], world.models.old(more))
    assert hits(migration.searcher(refresh=0).search(world.models.new(more)[0], 400))
    assert migration.forward().written == 1
    filled_to(world, migration, plan, 0.3)
    # What is filled does not depend on it.
    places = shared_of(migration)
    some = [key for key, (state, _) in places.items() if state == "filled" and key < ROWS][:5]
    blended = filled_of(world, [world.texts[key] for key in some], 0.7)
    np.testing.assert_allclose([places[key][1] for key in some], blended, atol=1e-5)


def test_a_plan_named_after_rows_were_lifted_says_that_they_store_something_else(
    world, lifted, both_plan
):
    lifted.backfill(Function(world.models), plan=both_plan(lift=0.4), labels="kind", share=0.1)
    assert any("store 0.4 of F(old)" in event["what"] for event in lifted.status().events)
    assert lifted.verify().proves


def filled_to(world, lifted, plan, share):
    lifted.backfill(Function(world.models), plan=plan, labels="kind", share=share)
    assert lifted.verify().proves


def test_finish_waits_until_new_queries_do_alone(world, lifted, both_plan):
    plan = both_plan()
    filled_to(world, lifted, plan, 0.3)
    with pytest.raises(NotProven, match=r"new queries alone are below today's search until 50%"):
        lifted.finish()
    filled_to(world, lifted, plan, 0.5)
    assert lifted.finish().stage == "finished"


def test_where_they_never_do_every_row_has_to_be_new(world, lifted, both_plan):
    plan = both_plan(reaches=None)
    filled_to(world, lifted, plan, 0.9)
    with pytest.raises(NotProven, match="nothing says that new queries alone are as good"):
        lifted.finish()
    filled_to(world, lifted, plan, 1.0)
    assert lifted.finish().stage == "finished"


def test_old_vectors_may_be_kept(world, lifted, both_plan):
    filled_to(world, lifted, both_plan(), 0.3)
    done = lifted.finish(keep_old=True)
    assert done.kept
    found = lifted.status()
    assert found.kept
    assert found.next.startswith("none: both columns are kept")
    text = texts_of(1, seed=5)
    old, new = world.models.old(text)[0], world.models.new(text)[0]
    searcher = lifted.searcher(refresh=0)
    assert hits(searcher.search(new, old=old)) == hits(searcher.search(new, old=old, ask="both"))
    # Rows that come are lifted as before, and all of it can be undone.
    more = texts_of(1, seed=6)
    world.app.insert([9000], more, [0], world.models.old(more))
    assert "forward" in lifted.status().next
    assert lifted.forward().written == 1
    assert lifted.rollback().stage == "rolled back"
    assert lifted.store.describe().added == ()


def test_kept_wants_proof_too_and_may_be_finished_later(world, lifted, both_plan):
    plan = both_plan()
    lifted.backfill(Function(world.models), plan=plan, labels="kind", share=0.6)
    with pytest.raises(NotProven, match="no `verify` has passed"):
        lifted.finish(keep_old=True)
    lifted.verify()
    lifted.finish(keep_old=True)
    lifted.verify()
    assert lifted.finish().stage == "finished"
    with pytest.raises(BadInput, match="the old vectors are gone"):
        lifted.finish(keep_old=True)


def test_a_share_is_filled_at_random_without_a_plan(world, lifted, tmp_path):
    embedder = Function(world.models)
    with pytest.raises(BadInput, match=r"which plan.*--share to fill at random"):
        lifted.backfill(embedder)
    done = lifted.backfill(embedder, share=0.25)
    assert done.filled == ROWS // 4 == len(set(embedder.asked))
    assert sorted(embedder.asked) != list(range(ROWS // 4))
    found = lifted.status()
    assert (found.asking, found.target, found.alone_from) == ("both", 0.25, None)
    task = lifted.journal.backfill
    assert Plan.load(Path(task.plan_folder), world.upgrade).record.order == "random"
    # It goes on without being told again, and filled rows hold the new model's own vectors.
    assert lifted.backfill(embedder, share=0.5).filled == ROWS // 2
    some = sorted(set(embedder.asked))[:20]
    stored = matrix(lifted.store.read(some, [VECTOR])[VECTOR])
    expected = world.models.new([world.texts[key] for key in some])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(stored, expected, atol=1e-5)
    lifted.verify()
    with pytest.raises(NotProven, match="finish --keep-old"):
        lifted.finish()


def test_another_share_without_a_plan_is_another_goal(world, migration):
    migration.start(source="body", force=True)
    migration.forward()
    embedder = Function(world.models)
    migration.backfill(embedder, share=0.1)
    again = Migration(world.app.address, world.folder)
    assert again.backfill(embedder, share=0.2).filled == ROWS // 5
    again.close()
