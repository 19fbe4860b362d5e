"""A migration from start to end, on every store, with an application that goes on working."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, texts_of

from crossfade.backfill.blend import blend
from crossfade.errors import BadInput, NotCompatible, StoreError
from crossfade.migration import Migration, Wanted
from crossfade.migration.columns import KNOWN, STATE, VECTOR
from crossfade.migration.journal import save_journal
from crossfade.stores.rows import matrix


@pytest.fixture
def migration(world):
    made = Migration(world.app.place, world.folder)
    yield made
    made.close()


@pytest.fixture
def lifted(migration):
    migration.start(source="body", force=True)
    migration.forward(size=70)
    return migration


def shared_of(migration) -> dict:
    out = {}
    for rows in migration.store.stream([VECTOR, STATE]):
        vectors = matrix(rows[VECTOR])
        for i, key in enumerate(rows[migration.store.id].to_pylist()):
            out[key] = (rows[STATE][i].as_py(), vectors[i])
    return out


def brute(vectors: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return np.argsort(-cosines, kind="stable")[:k].tolist()


def test_new_queries_work_from_start_on(world, migration):
    migration.start(source="body", force=True)
    query = world.models.new([world.texts[5]])[0]
    mapped = world.upgrade.backward(query)
    old = world.models.old(list(world.texts.values()))
    found = [hit.id for hit in migration.searcher().search(query, k=5)]
    assert found == brute(old, mapped[: old.shape[1]], 5)


def test_forward_writes_f_of_old_into_every_row(world, lifted):
    expected = world.upgrade.forward(world.models.old(list(world.texts.values())))
    found = shared_of(lifted)
    assert sorted(found) == list(range(ROWS))
    assert {state for state, _ in found.values()} == {"forward"}
    np.testing.assert_allclose([found[i][1] for i in range(ROWS)], expected, atol=1e-6)
    assert lifted.status().stage == "forward"
    query = world.models.new([world.texts[5]])[0]
    hits = lifted.searcher().search(query, k=5, columns=["body"])
    assert [hit.id for hit in hits] == brute(expected, world.upgrade.backward(query), 5)
    assert hits[0].values["body"] == world.texts[hits[0].id]


def test_forward_again_does_nothing(lifted):
    assert lifted.forward().written == 0


def test_backfill_writes_the_blend_in_the_plans_order_up_to_its_share(world, lifted, plan_folder):
    embedder = Function(world.models)
    done = lifted.backfill(embedder, Wanted(plan=plan_folder, labels="kind", share=0.4, batch=32))
    assert done.written == done.new == int(0.4 * ROWS)
    assert len(embedder.asked) == done.written
    found = shared_of(lifted)
    new = [key for key, (state, _) in found.items() if state == "new"]
    assert sorted(new) == sorted(embedder.asked)
    old = world.models.old([world.texts[key] for key in new])
    fresh = world.models.new([world.texts[key] for key in new])
    expected = blend(world.upgrade.backward(fresh), world.upgrade.forward(old), 0.7)
    np.testing.assert_allclose([found[key][1] for key in new], expected, atol=1e-6)
    status = lifted.status()
    assert (status.new, status.forward, status.stage) == (120, 180, "backfilling")
    assert status.quality is not None
    # The order is the nearest to their group's mean first, as the plan says.
    again = lifted.backfill(embedder, Wanted(share=0.4))
    assert again.written == 0


def test_items_store_what_the_plan_says_for_their_place(world, lifted, plan_folder, tmp_path):
    import json
    import shutil

    from crossfade.backfill.blend import Blend, stored
    from crossfade.migration.order import ids_of

    mine = tmp_path / "plan"
    shutil.copytree(plan_folder, mine, ignore=shutil.ignore_patterns("orders"))
    plan = json.loads((mine / "plan.json").read_text())
    (mine / "plan.json").write_text(json.dumps(plan | {"blend": 1.0, "last_blend": 0.2}))
    lifted.backfill(Function(world.models), Wanted(plan=mine, labels="kind", share=0.5))
    order = [key for ids in ids_of(next(mine.glob("orders/*.parquet"))) for key in ids]
    first, later = order[0], order[ROWS // 2 - 1]
    texts = [world.texts[first], world.texts[later]]
    mapped = world.upgrade.backward(world.models.new(texts))
    liftings = world.upgrade.forward(world.models.old(texts))
    shares = np.array([0, (ROWS // 2 - 1) / ROWS])
    expected = stored(mapped, liftings, Blend(1.0, 0.2), shares)
    found = shared_of(lifted)
    np.testing.assert_allclose([found[first][1], found[later][1]], expected, atol=1e-6)
    assert lifted.verify(embedder=Function(world.models)).passed


def test_a_share_of_no_whole_number_of_rows_is_reached_all_the_same(world, lifted, plan_folder):
    wanted = Wanted(plan=plan_folder, labels="kind", share=0.119)
    assert lifted.backfill(Function(world.models), wanted).new == 35
    assert "verify" in lifted.status().next


def test_backfill_goes_on_where_it_stopped(world, lifted, plan_folder):
    first, whole = Function(world.models), Function(world.models)
    lifted.backfill(first, Wanted(plan=plan_folder, labels="kind", share=1.0, items=50, batch=16))
    assert len(first.asked) == 50
    lifted.backfill(whole, Wanted(share=1.0, batch=16))
    assert sorted(first.asked + whole.asked) == list(range(ROWS))
    verified = lifted.verify(embedder=Function(world.models))
    assert verified.passed, verified
    assert "embedded again" in [check.name for check in verified.checks]


def test_backfill_stops_when_told(world, lifted, plan_folder):
    turns = iter([False, False, True])
    done = lifted.backfill(
        Function(world.models),
        Wanted(plan=plan_folder, labels="kind", share=1.0, batch=10),
        stop=lambda: next(turns),
    )
    assert done.written == 20
    assert "stop" in done.why


def test_rows_of_the_pairs_are_filled_first_at_no_cost(world, lifted, plan_folder, tmp_path):
    from crossfade.embedders import VectorFile

    known = [3, 14, 15, 92]
    new = world.models.new([world.texts[key] for key in known])
    np.savez(tmp_path / "known.npz", ids=np.array(known), vectors=new)
    embedder = Function(world.models)
    done = lifted.backfill(
        embedder,
        Wanted(plan=plan_folder, labels="kind", share=0.1),
        known=VectorFile(tmp_path / "known.npz"),
    )
    assert done.at_no_cost == 4
    assert done.new == 30
    assert not set(known) & set(embedder.asked)
    assert {key for key, (s, _) in shared_of(lifted).items() if s == "new"} >= set(known)


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
    done = lifted.backfill(made_before, Wanted(plan=plan_folder, labels="kind", share=1.0))
    assert done.new == ROWS - 1
    assert done.without_vector == 1
    assert shared_of(lifted)[7][0] == "forward"
    lifted.backfill(Function(world.models), Wanted(share=1.0))
    expected = blend(
        world.upgrade.backward(world.models.new(text)),
        world.upgrade.forward(world.models.old(text)),
        0.7,
    )
    np.testing.assert_allclose(shared_of(lifted)[7][1], expected[0], atol=1e-6)


def test_a_row_that_changes_while_it_is_embedded_gets_no_stale_vector(world, lifted, plan_folder):
    text = texts_of(1, seed=77)

    class Slow(Function):
        def embed(self, ids, sources):
            if 7 in ids and 7 not in self.asked:
                world.app.change(7, text[0], world.models.old(text)[0])
            return super().embed(ids, sources)

    lifted.backfill(
        Slow(world.models), Wanted(plan=plan_folder, labels="kind", share=1.0, batch=50)
    )
    expected = blend(
        world.upgrade.backward(world.models.new(text)),
        world.upgrade.forward(world.models.old(text)),
        0.7,
    )
    np.testing.assert_allclose(shared_of(lifted)[7][1], expected[0], atol=1e-6)
    assert lifted.verify().passed


def test_rows_deleted_on_the_way_do_not_come_back(world, lifted, plan_folder):
    class Deleting(Function):
        def embed(self, ids, sources):
            if 20 in ids and 20 not in self.asked:
                world.app.delete(20)
            return super().embed(ids, sources)

    world.app.delete(10)
    lifted.backfill(
        Deleting(world.models), Wanted(plan=plan_folder, labels="kind", share=1.0, batch=50)
    )
    assert set(shared_of(lifted)) == set(range(ROWS)) - {10, 20}
    assert lifted.verify().passed
    lifted.finish()
    assert lifted.store.describe().rows == ROWS - 2


def test_a_second_migration_at_once_is_refused(world, migration):
    migration.start(source="body", force=True)
    with migration.store.lock():
        second = Migration(world.app.place, world.folder)
        with pytest.raises(StoreError, match="another process"):
            second.forward()
        second.close()
    with pytest.raises(BadInput, match="under way"):
        migration.start(force=True)


def test_start_refuses_vectors_of_another_model(app, models, upgrade_folder):
    texts = texts_of(200)
    foreign = np.random.default_rng(5).normal(size=(200, 12)).astype(np.float32) + 3
    app.create(list(range(200)), texts, [0] * 200, foreign)
    migration = Migration(app.place, upgrade_folder)
    with pytest.raises(NotCompatible, match="do not look like vectors of coarse"):
        migration.start()
    assert migration.store.describe().added == ()
    migration.close()


def test_start_refuses_another_dimension(app, upgrade_folder):
    vectors = np.random.default_rng(5).normal(size=(50, 5)).astype(np.float32)
    app.create(list(range(50)), ["x"] * 50, [0] * 50, vectors)
    migration = Migration(app.place, upgrade_folder)
    with pytest.raises(BadInput, match=r"5 dimensions.*12"):
        migration.start(force=True)
    migration.close()


def test_verify_finds_a_vector_that_was_tampered_with(world, lifted):
    store = lifted.store
    rows = store.read([33], list(store.describe().added))
    vector = matrix(rows[VECTOR])
    vector[0, 0] += 0.25
    from crossfade.files.arrow import to_arrow

    changed = rows.set_column(rows.schema.get_field_index(VECTOR), VECTOR, to_arrow(vector))
    store.write(changed)
    found = lifted.verify()
    assert not found.passed
    assert "33" in next(c.detail for c in found.checks if c.name == "checksums")


def test_an_upgrade_that_changed_meanwhile_is_refused(world, lifted, models, tmp_path):
    from crossfade import Upgrade

    texts = texts_of(600, seed=3)
    Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts)).save(tmp_path / "other")
    other = Migration(world.app.place, tmp_path / "other")
    with pytest.raises(BadInput, match="was started with"):
        other.forward()
    other.close()


def test_a_plan_that_changed_meanwhile_is_refused(world, lifted, plan_folder, tmp_path):
    import shutil

    mine = tmp_path / "plan"
    shutil.copytree(plan_folder, mine)
    lifted.backfill(Function(world.models), Wanted(plan=mine, labels="kind", share=0.1))
    text = (mine / "plan.json").read_text()
    (mine / "plan.json").write_text(text.replace('"blend": 0.7', '"blend": 0.5'))
    with pytest.raises(BadInput, match="has changed since"):
        lifted.backfill(Function(world.models), Wanted(share=0.2))
