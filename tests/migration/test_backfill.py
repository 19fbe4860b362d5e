"""Backfilling a store: the plan's order, blend and share, stopped and gone on with."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, filled_of, lifted_of, shared_of, unit

from crossfade.embedders import BaseEmbedder
from crossfade.errors import BadInput, EmbedderError


def test_backfill_writes_the_blend_in_the_plans_order_up_to_its_share(world, lifted, plan_folder):
    embedder = Function(world.models)
    done = lifted.backfill(embedder, plan=plan_folder, labels="kind", share=0.4, batch=32)
    assert done.written == done.filled == int(0.4 * ROWS)
    assert len(embedder.asked) == done.written
    found = shared_of(lifted)
    new = [key for key, (state, _) in found.items() if state == "filled"]
    assert sorted(new) == sorted(embedder.asked)
    expected = filled_of(world, [world.texts[key] for key in new], 0.7)
    np.testing.assert_allclose([found[key][1] for key in new], expected, atol=1e-6)
    status = lifted.status()
    assert (status.filled, status.lifted, status.stage) == (120, 180, "backfilling")
    assert status.quality is not None
    # The order is the nearest to their group's mean first, as the plan says.
    again = lifted.backfill(embedder, share=0.4)
    assert again.written == 0


def test_items_store_what_the_plan_says_for_their_place(world, lifted, plan_folder, tmp_path):
    import json
    import shutil

    from crossfade.backfill.blend import Blend, stored
    from crossfade.backfill.plan import content_hash
    from crossfade.migration.order import read_ids

    mine = tmp_path / "plan"
    shutil.copytree(plan_folder, mine, ignore=shutil.ignore_patterns("orders"))
    plan = json.loads((mine / "plan.json").read_text())
    plan = {k: v for k, v in plan.items() if k != "hash"} | {"blend": 1.0, "last_blend": 0.2}
    (mine / "plan.json").write_text(json.dumps(plan | {"hash": content_hash(plan, mine)}))
    lifted.backfill(Function(world.models), plan=mine, labels="kind", share=0.5)
    order = [key for ids in read_ids(next(mine.glob("orders/*.parquet"))) for key in ids]
    first, later = order[0], order[ROWS // 2 - 1]
    texts = [world.texts[first], world.texts[later]]
    mapped, liftings = unit(world.models.new(texts)), lifted_of(world, texts)
    shares = np.array([0, (ROWS // 2 - 1) / ROWS])
    expected = stored(mapped, liftings, Blend(1.0, 0.2), shares)
    found = shared_of(lifted)
    np.testing.assert_allclose([found[first][1], found[later][1]], expected, atol=1e-6)
    assert lifted.verify(embed=Function(world.models)).passed


def test_a_share_of_no_whole_number_of_rows_is_reached_all_the_same(world, lifted, plan_folder):
    wanted = {"plan": plan_folder, "labels": "kind", "share": 0.119}
    assert lifted.backfill(Function(world.models), **wanted).filled == 35
    assert "verify" in lifted.status().next


def test_backfill_goes_on_where_it_stopped(world, lifted, plan_folder):
    first, whole = Function(world.models), Function(world.models)
    lifted.backfill(first, plan=plan_folder, labels="kind", share=1.0, items=50, batch=16)
    assert len(first.asked) == 50
    lifted.backfill(whole, share=1.0, batch=16)
    assert sorted(first.asked + whole.asked) == list(range(ROWS))
    verified = lifted.verify(embed=Function(world.models))
    assert verified.passed, verified
    assert "embedded again" in [check.name for check in verified.checks]


def test_backfill_stops_when_told(world, lifted, plan_folder):
    turns = iter([False, False, True])
    done = lifted.backfill(
        Function(world.models),
        plan=plan_folder,
        labels="kind",
        share=1.0,
        batch=10,
        stop=lambda: next(turns),
    )
    assert done.written == 20
    assert "stop" in done.why


def test_rows_of_the_pairs_are_filled_first_at_no_cost(world, lifted, plan_folder, tmp_path):
    known = [3, 14, 15, 92]
    new = world.models.new([world.texts[key] for key in known])
    np.savez(tmp_path / "known.npz", ids=np.array(known), vectors=new)
    embedder = Function(world.models)
    done = lifted.backfill(
        embedder,
        plan=plan_folder,
        labels="kind",
        share=0.1,
        known=tmp_path / "known.npz",
    )
    assert done.at_no_cost == 4
    assert done.filled == 30
    assert not set(known) & set(embedder.asked)
    assert {key for key, (s, _) in shared_of(lifted).items() if s == "filled"} >= set(known)


def test_a_plan_that_changed_meanwhile_is_refused(world, lifted, plan_folder, tmp_path):
    import shutil

    mine = tmp_path / "plan"
    shutil.copytree(plan_folder, mine)
    lifted.backfill(Function(world.models), plan=mine, labels="kind", share=0.1)
    text = (mine / "plan.json").read_text()
    (mine / "plan.json").write_text(text.replace('"blend": 0.7', '"blend": 0.5'))
    for named in (None, mine, mine / ".." / "plan"):
        with pytest.raises(BadInput, match=r"has changed since|was edited"):
            lifted.backfill(Function(world.models), plan=named, labels="kind", share=0.2)
    shutil.copytree(mine, tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="was edited"):
        lifted.backfill(Function(world.models), plan=tmp_path / "elsewhere", share=0.2)


class TenAtOnce(Function, BaseEmbedder):
    """Says how many items it takes at a time."""

    at_once = 10


def test_a_slow_models_vectors_are_written_bit_by_bit_in_the_order(
    world, lifted, plan_folder, monkeypatch
):
    monkeypatch.setattr("crossfade.migration.backfill._SECONDS", 0.0)
    slow, quick = TenAtOnce(world.models), Function(world.models)
    lifted.backfill(slow, plan=plan_folder, labels="kind", share=0.2)
    assert len(slow.asked) == len(set(slow.asked)) == ROWS // 5
    monkeypatch.undo()
    lifted.backfill(quick, share=1.0)
    assert sorted(slow.asked + quick.asked) == list(range(ROWS))
    assert lifted.verify(embed=Function(world.models)).passed


def test_what_was_embedded_before_a_failure_is_written(world, lifted, plan_folder):
    class Failing(TenAtOnce):
        def embed(self, ids, sources):
            if len(self.asked) == 30:
                raise EmbedderError("the model is gone", where="here")
            return super().embed(ids, sources)

    failing = Failing(world.models)
    with pytest.raises(EmbedderError, match="the model is gone"):
        lifted.backfill(failing, plan=plan_folder, labels="kind", share=0.5)
    found = shared_of(lifted)
    filled = [key for key, (state, _) in found.items() if state == "filled"]
    assert sorted(filled) == sorted(failing.asked)
    assert len(failing.asked) == 30
