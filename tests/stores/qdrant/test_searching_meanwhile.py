"""Searches find every row at every call that `finish` makes to Qdrant."""

from __future__ import annotations

import numpy as np
from tests.migration.conftest import Models, texts_of
from tests.stores.apps import QdrantApp

from crossfade import Upgrade
from crossfade.migration import Migration

CALLS = (
    "delete_vector_name",
    "create_vector_name",
    "batch_update_points",
    "delete_payload",
    "upsert",
    "delete",
)


def test_at_every_call_of_finish(tmp_path, monkeypatch):
    models, app = Models(), QdrantApp(tmp_path)
    texts = texts_of(600, seed=99)
    Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts)).save(tmp_path / "up")
    own = texts_of(40)
    app.create(list(range(40)), own, [0] * 40, models.old(own))
    migration = Migration(app.address, tmp_path / "up")
    migration.start(source="body", force=True)
    migration.forward()
    searcher = migration.searcher(refresh=0)
    query = models.new(own[7:8])[0]
    expected = [hit.id for hit in searcher.search(query, 40)]
    searched = []

    def wrapped(real, name):
        def call(*arguments, **named):
            for moment in ("before", "after"):
                if moment == "after":
                    answer = real(*arguments, **named)
                searched.append((name, moment))
                assert [hit.id for hit in searcher.search(query, 40)] == expected
            return answer

        return call

    for name in CALLS:
        monkeypatch.setattr(app.client, name, wrapped(getattr(app.client, name), name))
    assert migration.finish(force=True).stage == "finished"
    monkeypatch.undo()
    assert {name for name, _ in searched} >= {"delete_vector_name", "create_vector_name"}
    assert [hit.id for hit in searcher.search(query, 40)] == expected
    np.testing.assert_equal(len(expected), 40)
    migration.close()
    app.close()
