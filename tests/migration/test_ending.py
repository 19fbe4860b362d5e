"""How a migration ends, on every store: searches while it finishes, rollback from any stage."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import (
    ROWS,
    Function,
    filled_of,
    lifted_of,
    shared_of,
    texts_of,
    unit,
)

from crossfade import Upgrade
from crossfade.errors import BadInput, StoreError
from crossfade.journal.columns import KNOWN, SUM, VECTOR
from crossfade.journal.journal import save_journal
from crossfade.migration import Migration
from crossfade.migration import finish as finish_step
from crossfade.migration.batch import Batch
from crossfade.stores import open_store
from crossfade.stores.rows import matrix


def columns(lifted):
    return [*Batch.columns(lifted.store, "body"), VECTOR, SUM]


def test_searches_go_on_at_every_moment_of_finish(world, lifted):
    searcher = lifted.searcher(refresh=0)
    text = world.texts[42]
    queries = {"new": world.models.new([text])[0], "old": world.models.old([text])[0]}

    def found():
        return [searcher.search(k=300, **{model: queries[model]})[0].id for model in queries]

    store, before, meanwhile = lifted.store, found(), []
    save_journal(store, lifted.journal.after(stage="finishing"))
    meanwhile.append(found())
    mend = finish_step._mend(store, world.upgrade, lifted.journal)

    def work(rows):
        meanwhile.append(found())
        return mend(rows)

    store.promote(VECTOR, KNOWN, columns=columns(lifted), work=work)
    meanwhile.append(found())
    assert lifted.finish().stage == "finished"
    assert len(meanwhile) >= 3
    # Old queries are compared with old vectors before, and through F from then on.
    assert {new for new, _ in [before, *meanwhile, found()]} == {before[0]}
    assert {old for _, old in [*meanwhile, found()]} == {meanwhile[0][1]}


def test_finish_leaves_the_shared_vectors_alone(world, lifted):
    expected = shared_of(lifted)
    query = world.models.new([world.texts[9]])[0]
    before = [hit.id for hit in lifted.searcher().search(query, k=7)]
    assert lifted.finish(force=True).stage == "finished"
    assert lifted.finish().stage == "finished"
    store = lifted.store
    assert store.describe().dim == world.upgrade.shared_dim_
    assert store.describe().added == ()
    rows = store.read(list(range(ROWS)), [store.vector])
    for key, vector in zip(rows[store.id].to_pylist(), matrix(rows[store.vector]), strict=True):
        np.testing.assert_allclose(vector, expected[key][1], atol=1e-6)
    assert [hit.id for hit in lifted.searcher().search(query, k=7)] == before
    status = lifted.status()
    assert (status.stage, status.rows, status.lifted, status.filled) == ("finished", ROWS, ROWS, 0)
    with pytest.raises(BadInput, match="rolled back"):
        lifted.rollback()


def test_rows_that_come_and_change_while_it_finishes_are_finished_with_what_they_are(
    world, lifted, monkeypatch
):
    texts = texts_of(3, seed=5)
    vectors = world.models.old(texts)
    seen = finish_step.unproven

    def meanwhile(*arguments, **named):
        problems = seen(*arguments, **named)
        # Behind the last look: from here on nobody counts.
        world.app.insert([9000], texts[:1], [0], vectors[:1])
        world.app.change(7, texts[1], vectors[1])
        world.app.empty(8)
        world.app.delete(9)
        world.app.delete(10)
        world.app.insert([10], texts[2:], [0], vectors[2:])
        return problems

    monkeypatch.setattr(finish_step, "unproven", meanwhile)
    lifted.finish(force=True)
    rows = lifted.store.read([9000, 7, 8, 9, 10, 11], [lifted.store.vector])
    assert rows["id"].to_pylist() == [9000, 7, 8, 10, 11]
    found = rows[lifted.store.vector]
    assert [v.is_valid for v in found] == [True, True, False, True, True]
    expected = lifted_of(world, [*texts, world.texts[11]])
    np.testing.assert_allclose(matrix(found)[[0, 1, 3, 4]], expected, atol=1e-5)


@pytest.mark.parametrize("stage", ["started", "forward", "backfilling", "finishing"])
def test_rollback_returns_to_the_old_vectors(world, migration, plan_folder, stage, monkeypatch):
    before = world.app.old()
    migration.start(source="body", force=True)
    if stage != "started":
        migration.forward()
    if stage in ("backfilling", "finishing"):
        migration.backfill(Function(world.models), plan=plan_folder, labels="kind", share=0.2)
    if stage == "finishing":

        def fail(*_):
            def work(rows):
                raise RuntimeError("cut short")

            return work

        monkeypatch.setattr(finish_step, "_mend", fail)
        with pytest.raises(RuntimeError, match="cut short"):
            migration.finish(force=True)
        monkeypatch.undo()
        assert migration.journal.stage == "finishing"
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


def test_a_finish_that_was_cut_short_goes_on(world, lifted, monkeypatch):
    expected = shared_of(lifted)
    real = finish_step._mend

    def fail(*arguments):
        work = real(*arguments)

        def once(rows):
            work(rows)
            raise RuntimeError("cut short")

        return once

    monkeypatch.setattr(finish_step, "_mend", fail)
    with pytest.raises(RuntimeError):
        lifted.finish(force=True)
    monkeypatch.undo()
    query = world.models.new([world.texts[9]])[0]
    assert lifted.searcher().search(query, k=1)[0].id == 9
    assert lifted.finish().stage == "finished"
    rows = lifted.store.read(list(range(ROWS)), [lifted.store.vector])
    found = dict(zip(rows["id"].to_pylist(), matrix(rows[lifted.store.vector]), strict=True))
    for key, (_, vector) in expected.items():
        np.testing.assert_allclose(found[key], vector, atol=1e-6)


def test_old_vectors_that_are_gone_cannot_be_withdrawn(world, lifted):
    lifted.finish(force=True)
    with pytest.raises(StoreError, match="gone"):
        lifted.store.withdraw(VECTOR)


def test_after_finish_plain_new_vectors_are_inserted_and_asked_as_in_an_index_of_their_own(
    world, lifted, plan_folder
):
    lifted.backfill(Function(world.models), plan=plan_folder, labels="kind", share=1.0)
    lifted.finish(force=True)
    come = texts_of(50, seed=77)
    world.app.insert(list(range(9000, 9050)), come, [0] * 50, world.models.new(come))
    store = lifted.store
    plain = open_store(world.app.address, vector=store.vector)
    texts = list(world.texts.values()) + come
    keys = [*world.texts, *range(9000, 9050)]
    from_scratch = np.vstack(
        [filled_of(world, list(world.texts.values()), 0.7), unit(world.models.new(come))]
    )
    for text in come[:10] + texts[:10]:
        query = world.models.new([text])[0]
        hits = plain.search(query, column=store.vector, k=5)
        scores = from_scratch @ query / np.linalg.norm(query)
        best = np.sort(scores)[::-1][:5]
        np.testing.assert_allclose([scores[keys.index(hit.id)] for hit in hits], best, atol=1e-5)
    plain.close()


def test_a_b_that_stretches_ends_in_the_shared_space(world, models, tmp_path):
    texts = texts_of(600, seed=3)
    upgrade = Upgrade(solver="closed_form", backward_map="affine")
    upgrade.fit(models.old(texts), models.new(texts)).save(tmp_path / "affine")
    migration = Migration(world.app.address, tmp_path / "affine")
    migration.start(source="body", force=True)
    assert migration.journal.space == "shared"
    migration.forward()
    migration.finish(force=True)
    rows = migration.store.read([7], [migration.store.vector])
    expected = upgrade.forward(models.old([world.texts[7]]))
    np.testing.assert_allclose(matrix(rows[migration.store.vector]), expected, atol=1e-5)
    query = models.new([world.texts[7]])[0]
    hits = migration.searcher().search(query, k=3)
    gallery = upgrade.forward(models.old(list(world.texts.values())))
    scores = gallery @ upgrade.backward(query)
    best = np.sort(scores)[::-1][:3]
    np.testing.assert_allclose([scores[hit.id] for hit in hits], best, atol=1e-5)
    migration.close()
