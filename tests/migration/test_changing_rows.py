"""An application that goes on working: rows that come, change and go during a migration."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.migration.conftest import (
    ROWS,
    Function,
    filled_of,
    lifted_of,
    shared_of,
    texts_of,
)

from crossfade.embedders import BaseEmbedder
from crossfade.errors import BadInput
from crossfade.journal.columns import FILLED, STATE


def test_rows_that_come_later_are_found_at_once_and_lifted_by_the_next_forward(world, lifted):
    text = texts_of(1, seed=55)
    world.app.insert([9000], text, [0], world.models.old(text))
    query = world.models.new(text)[0]
    searcher = lifted.searcher(refresh=0.0)
    found = searcher.search(query, k=20)
    assert 9000 in [hit.id for hit in found]
    assert lifted.status().late == 1
    assert "forward" in lifted.status().next
    assert lifted.forward().written == 1
    again = searcher.search(query, k=20)
    assert [hit.id for hit in again] == [hit.id for hit in found]
    np.testing.assert_allclose([h.score for h in again], [h.score for h in found], atol=1e-5)
    assert lifted.status().late == 0


def test_rows_that_changed_are_lifted_again_and_backfilled_with_what_they_are(
    world, lifted, plan_folder, tmp_path
):
    from crossfade.embedders import VectorFile

    text = texts_of(1, seed=66)
    world.app.change(7, text[0], world.models.old(text)[0])
    assert not lifted.verify().passed
    assert lifted.forward().written == 1
    assert lifted.verify().passed
    everything = list(range(ROWS))
    stale = world.models.new([world.texts[key] for key in everything])
    np.savez(tmp_path / "vectors.npz", ids=np.array(everything), vectors=stale)
    made_before = VectorFile(tmp_path / "vectors.npz")
    done = lifted.backfill(made_before, plan=plan_folder, labels="kind", share=1.0)
    assert done.filled == ROWS - 1
    assert done.without_vector == 1
    assert shared_of(lifted)[7][0] == "lifted"
    lifted.backfill(Function(world.models), share=1.0)
    expected = filled_of(world, text, 0.7)
    np.testing.assert_allclose(shared_of(lifted)[7][1], expected[0], atol=1e-6)


def test_a_row_that_changes_while_it_is_embedded_gets_no_stale_vector(world, lifted, plan_folder):
    text = texts_of(1, seed=77)

    class Slow(Function):
        def embed(self, ids, sources):
            if 7 in ids and 7 not in self.asked:
                world.app.change(7, text[0], world.models.old(text)[0])
            return super().embed(ids, sources)

    lifted.backfill(Slow(world.models), plan=plan_folder, labels="kind", share=1.0, batch=50)
    expected = filled_of(world, text, 0.7)
    np.testing.assert_allclose(shared_of(lifted)[7][1], expected[0], atol=1e-6)
    assert lifted.verify().passed


def test_rows_beside_one_that_changes_are_embedded_once(world, lifted, plan_folder):
    """Also where a store refuses the whole batch for the sake of that one."""
    text = texts_of(1, seed=78)

    class Slow(Function):
        def embed(self, ids, sources):
            if 7 in ids and 7 not in self.asked:
                world.app.change(7, text[0], world.models.old(text)[0])
            return super().embed(ids, sources)

    slow = Slow(world.models)
    done = lifted.backfill(slow, plan=plan_folder, labels="kind", share=1.0, batch=50)
    times = Counter(slow.asked)
    assert times.pop(7) == 2
    assert times == dict.fromkeys(set(range(ROWS)) - {7}, 1)
    assert (done.filled, done.written, done.left) == (ROWS, ROWS, 0)


def test_a_write_whose_answer_was_lost_is_not_done_twice_and_counts(
    world, lifted, plan_folder, monkeypatch
):
    write, lost = lifted.store.write, []

    def losing(rows):
        written = write(rows)
        if lost or FILLED not in rows[STATE].to_pylist():
            return written
        lost.append(written)
        return 0

    monkeypatch.setattr(lifted.store, "write", losing)
    function = Function(world.models)
    done = lifted.backfill(function, plan=plan_folder, labels="kind", share=1.0, batch=50)
    assert lost == [50]
    assert Counter(function.asked) == dict.fromkeys(range(ROWS), 1)
    assert (done.filled, done.written, done.left) == (ROWS, ROWS, 0)
    assert lifted.verify().passed


def test_rows_deleted_on_the_way_do_not_come_back(world, lifted, plan_folder):
    class Deleting(Function):
        def embed(self, ids, sources):
            if 20 in ids and 20 not in self.asked:
                world.app.delete(20)
            return super().embed(ids, sources)

    world.app.delete(10)
    lifted.backfill(Deleting(world.models), plan=plan_folder, labels="kind", share=1.0, batch=50)
    assert set(shared_of(lifted)) == set(range(ROWS)) - {10, 20}
    assert lifted.verify().passed
    lifted.finish()
    assert lifted.store.describe().rows == ROWS - 2


def test_a_forward_that_was_cut_off_sees_what_changed_before_it_goes_on(world, migration):
    migration.start(source="body", force=True)
    migration.forward(size=50, stop=lambda: True)
    text = texts_of(1, seed=91)
    for key in (3, 290):
        world.app.change(key, text[0], world.models.old(text)[0])
    migration.forward()
    assert migration.verify().passed
    expected = lifted_of(world, text)[0]
    for key in (3, 290):
        np.testing.assert_allclose(shared_of(migration)[key][1], expected, atol=1e-6)


def test_a_catching_up_that_was_cut_off_sees_what_changed_behind_it(world, lifted):
    # One batch is gone through, then it is stopped, and a row of that batch changes.
    lifted.forward(size=50, stop=lambda: True)
    assert lifted.journal.cursor is not None
    text = texts_of(1, seed=92)
    world.app.change(3, text[0], world.models.old(text)[0])
    lifted.forward(size=50)
    assert lifted.journal.cursor is None
    assert lifted.verify().passed


def test_pieces_that_come_one_by_one_are_written_and_rows_that_change_between_them_are_not(
    world, lifted, plan_folder
):
    text = texts_of(1, seed=93)

    class Pieces(Function, BaseEmbedder):
        """Gives a few items at a time, the last first; after the first piece others change."""

        def embed_parts(self, ids, sources, enough=lambda: False):
            for first in reversed(range(0, len(ids), 20)):
                rows = np.arange(first, min(first + 20, len(ids)))[::-1]
                changing = 0 < len(self.asked) < 200
                made = self.embed([ids[row] for row in rows], [sources[row] for row in rows])
                if changing and 7 in self.asked[-len(rows) :]:
                    world.app.change(7, text[0], world.models.old(text)[0])
                if changing and 20 in self.asked[-len(rows) :]:
                    world.app.delete(20)
                yield [(rows, made)]

    pieces = Pieces(world.models)
    done = lifted.backfill(pieces, plan=plan_folder, labels="kind", share=1.0, batch=200)
    found = shared_of(lifted)
    assert {state for state, _ in found.values()} == {"filled"}
    texts = world.texts | {7: text[0]}
    keys = sorted(found)
    expected = filled_of(world, [texts[key] for key in keys], 0.7)
    np.testing.assert_allclose([found[key][1] for key in keys], expected, atol=1e-6)
    assert done.filled == len(found)
    assert lifted.verify().passed


def test_a_text_whose_column_backfill_named_is_watched_from_then_on(world, migration, plan_folder):
    migration.start(force=True)
    migration.forward()
    embedder = Function(world.models)
    named = {"plan": plan_folder, "labels": "kind"}
    migration.backfill(embedder, **named, source="body", share=1.0)
    assert migration.verify(embed=embedder).passed
    before = shared_of(migration)[7][1]
    # The text alone: a vector of the old model that is stored beside it is not made anew.
    old = world.models.old([world.texts[7]])[0]
    text = texts_of(1, seed=79)
    world.app.change(7, text[0], old)
    verdict = migration.verify(embed=embedder)
    assert not verdict.passed
    assert "run `forward` again" in " ".join(
        check.detail for check in verdict.checks if check.passed is False
    )
    migration.forward()
    migration.backfill(embedder, share=1.0)
    assert Counter(embedder.asked)[7] >= 2
    assert shared_of(migration)[7][0] == "filled"
    assert np.abs(shared_of(migration)[7][1] - before).max() > 0.01
    assert migration.verify(embed=embedder).passed


def test_a_second_column_of_texts_is_refused(world, migration, plan_folder):
    migration.start(source="body", force=True)
    migration.forward()
    for name in ("kind", "nothing"):
        with pytest.raises(BadInput, match="body"):
            migration.backfill(Function(world.models), plan=plan_folder, source=name, share=1.0)
