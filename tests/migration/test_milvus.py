"""Whole migrations on Milvus: those statements of this folder that ask most of a store."""

from __future__ import annotations

import numpy as np
from tests.migration.conftest import Function, texts_of
from tests.migration.test_changing_rows import (  # noqa: F401
    test_a_forward_that_was_cut_off_sees_what_changed_before_it_goes_on,
    test_a_row_that_changes_while_it_is_embedded_gets_no_stale_vector,
    test_rows_deleted_on_the_way_do_not_come_back,
    test_rows_that_changed_are_lifted_again_and_backfilled_with_what_they_are,
    test_rows_that_come_later_are_found_at_once_and_lifted_by_the_next_forward,
)
from tests.migration.test_ending import (  # noqa: F401
    test_a_finish_that_was_cut_short_goes_on,
    test_after_finish_plain_new_vectors_are_inserted_and_asked_as_in_an_index_of_their_own,
    test_finish_leaves_the_shared_vectors_alone,
    test_rollback_returns_to_the_old_vectors,
    test_rows_that_come_and_change_while_it_finishes_are_finished_with_what_they_are,
    test_searches_go_on_at_every_moment_of_finish,
)
from tests.migration.test_late_rows import (  # noqa: F401
    test_a_row_that_loses_its_old_vector_is_no_longer_found,
)
from tests.migration.test_opening import (  # noqa: F401
    started,
    test_every_step_takes_the_columns_from_the_journal,
)
from tests.stores.milvus_store.conftest import app  # noqa: F401

from crossfade import Searcher


def test_the_whole_way_by_proof(world, migration, plan_folder):
    migration.start(source="body", force=True)
    migration.forward()
    migration.backfill(Function(world.models), plan=plan_folder, share=1.0)
    late = texts_of(1, seed=9)
    world.app.insert([5000], late, [1], world.models.old(late))
    assert not migration.verify().passed
    migration.forward()
    migration.backfill(Function(world.models), plan=plan_folder, share=1.0)
    assert migration.verify().passed
    assert migration.finish().stage == "finished"
    query = world.models.new(late)[0]
    found = Searcher(world.app.address, world.upgrade)
    assert found.search(query, 1, columns=["body"])[0].values["body"] == late[0]
    found.store.close()


def test_a_file_is_left_as_it_was_by_a_rollback(world, migration):
    before = world.app.old()
    migration.start(source="body", force=True)
    migration.forward()
    migration.rollback()
    after = world.app.old()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert set(world.app.client.list_collections()) <= {"items", "crossfade_state"}
