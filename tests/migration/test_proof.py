"""`finish` wants proof: of this very state, of the planned share, of nothing late or changed."""

from __future__ import annotations

import pytest
from tests.migration.conftest import ROWS, Function, texts_of

from crossfade.errors import BadInput, NotProven
from crossfade.journal.journal import KEY
from crossfade.migration import Migration
from crossfade.migration.live_quality import Queries


@pytest.fixture
def filled(world, lifted, plan_folder):
    """Backfilled to the last row, which is at least what the plan wants."""
    lifted.backfill(Function(world.models), plan=plan_folder, labels="kind", share=1.0)
    return lifted


def test_a_verified_and_filled_store_is_finished_without_force(filled):
    assert "verify" in filled.status().next
    assert filled.verify().proves
    assert "finish" in filled.status().next
    assert filled.finish().stage == "finished"
    status = filled.status()
    assert (status.stage, status.filled, status.share) == ("finished", ROWS, 1.0)


def test_what_a_verify_measures_is_remembered_with_the_share_it_was_measured_at(world, lifted):
    texts = texts_of(30, seed=5)
    old, new = world.models.old(texts), world.models.new(texts)
    asked = Queries(old, new, [ord(text[0]) for text in texts], "kind")
    assert lifted.status().measured is None
    found = lifted.verify(queries=asked).quality["measured"]
    known = lifted.status().measured
    assert (known["share"], known["queries"]) == (0.0, found["queries"])
    assert (known["new"], known["old"]) == (found["new"], found["old"])
    # Rows that are written take the proof away, not what is known of before.
    lifted.backfill(Function(world.models), share=0.5)
    assert not lifted.status().verified
    assert lifted.status().measured == known


def test_without_a_verify_it_is_refused(filled):
    with pytest.raises(NotProven, match="no `verify` has passed"):
        filled.finish()
    assert filled.journal.stage == "backfilling"


def test_a_verify_that_failed_is_no_proof(world, filled):
    assert filled.verify().proves
    text = texts_of(1, seed=3)[0]
    world.app.change(5, text, world.models.old([text])[0])
    assert not filled.verify().passed
    with pytest.raises(NotProven, match="no `verify` has passed"):
        filled.finish()


@pytest.mark.parametrize("what", ["comes", "changes", "is emptied"])
def test_what_happens_behind_a_verify_is_seen(world, filled, what):
    assert filled.verify().proves
    text = texts_of(1, seed=3)
    if what == "comes":
        world.app.insert([9000], text, [0], world.models.old(text))
    elif what == "changes":
        world.app.change(5, text[0], world.models.old(text)[0])
    else:
        world.app.empty(5)
    with pytest.raises(NotProven, match=r"9000|\b5\b"):
        filled.finish()
    assert filled.journal.stage == "backfilling"
    filled.forward()
    filled.verify()
    if what == "changes":
        # It was filled, is only lifted now, and the planned share may not be reached any more.
        filled.backfill(Function(world.models), share=1.0)
        filled.verify()
    filled.finish(force=what == "comes")


def test_a_row_that_goes_is_no_reason_to_refuse(world, filled):
    assert filled.verify().proves
    world.app.delete(5)
    assert filled.finish().stage == "finished"


def test_below_the_planned_share_it_is_refused(world, lifted, plan_folder, tmp_path):
    import json
    import shutil

    from crossfade.backfill.plan import content_hash

    mine = tmp_path / "plan"
    shutil.copytree(plan_folder, mine, ignore=shutil.ignore_patterns("orders"))
    plan = json.loads((mine / "plan.json").read_text())
    plan = {k: v for k, v in plan.items() if k != "hash"} | {"stop": 0.5}
    (mine / "plan.json").write_text(json.dumps(plan | {"hash": content_hash(plan, mine)}))
    lifted.backfill(Function(world.models), plan=mine, labels="kind", share=0.1)
    status = lifted.status()
    assert (status.target, status.share) == (0.5, 0.1)
    assert "backfill" in status.next
    assert "--embed" in status.next
    lifted.verify()
    with pytest.raises(NotProven, match="the plan wants 50%"):
        lifted.finish()
    lifted.backfill(Function(world.models), share=0.5)
    assert "verify" in lifted.status().next
    lifted.verify()
    assert lifted.finish().stage == "finished"


def test_without_a_plan_it_is_refused_but_for_force(lifted):
    lifted.verify()
    with pytest.raises(NotProven, match="no plan says how much is enough"):
        lifted.finish()
    assert any("forced although no plan" in e.what for e in lifted.finish(force=True).events)


def test_a_check_that_was_left_out_says_so(world, lifted, filled):
    found = {check.name: check for check in filled.verify().checks}
    assert found["embedded again"].passed is None
    assert found["quality"].passed is None
    assert "left out" in found["quality"].detail
    again = filled.verify(embed=Function(world.models))
    assert next(c for c in again.checks if c.name == "embedded again").passed is True


def test_a_lost_journal_is_taken_over_or_rolled_back_by_force(world, filled):
    filled.store.put(KEY, None)
    again = Migration(world.app.address, world.folder)
    with pytest.raises(BadInput, match=r"journal is lost.*rollback .* --force"):
        again.start(source="body")
    with pytest.raises(BadInput, match="journal of its migration is lost"):
        again.rollback()
    again.start(source="body", force=True)
    assert again.forward().written == 0
    # What was paid for is still there.
    assert again.status().filled == ROWS
    assert again.verify().passed
    again.store.put(KEY, None)
    assert again.rollback(force=True) is None
    assert again.store.describe().added == ()
    assert len(world.app.old()) == ROWS
    again.start(source="body", force=True)
    again.close()


def test_columns_of_another_upgrade_are_not_taken_over(world, lifted, models, tmp_path):
    from crossfade import Upgrade

    texts = texts_of(600, seed=3)
    Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts)).save(tmp_path / "other")
    lifted.store.put(KEY, None)
    other = Migration(world.app.address, tmp_path / "other")
    with pytest.raises(BadInput, match="another upgrade"):
        other.start(source="body", force=True)
    other.close()


def test_a_journal_that_nobody_can_read_is_rolled_back_by_force(world, lifted):
    from crossfade.errors import StoreError

    lifted.store.put(KEY, '{"format": 1}')
    with pytest.raises(StoreError, match="--force"):
        lifted.rollback()
    lifted.rollback(force=True)
    assert lifted.store.describe().added == ()
    lifted.start(source="body", force=True)
