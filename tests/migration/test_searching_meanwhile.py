"""A search of both columns while `finish` lets them change places."""

from __future__ import annotations

import pytest
from tests.migration.conftest import Models, texts_of
from tests.stores.apps import ParquetApp

from crossfade import Searcher, Upgrade
from crossfade.migration import Migration
from crossfade.stores.parquet.promote import Promotion


@pytest.mark.parametrize("questions", [1, 2])
def test_the_columns_change_places_between_two_questions(tmp_path, monkeypatch, questions):
    models, app = Models(), ParquetApp(tmp_path)
    texts = texts_of(600, seed=99)
    Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts)).save(tmp_path / "up")
    own = texts_of(40)
    app.create(list(range(40)), own, [0] * 40, models.old(own))
    migration = Migration(app.address, tmp_path / "up")
    migration.start(source="body", force=True)
    migration.forward()
    searcher = Searcher(app.address, Upgrade.load(tmp_path / "up"), refresh=3600)
    sides = {"new": models.new(own[7:8])[0], "old": models.old(own[7:8])[0]}
    assert searcher.search(k=3, **sides)[0].id == 7
    searcher._sampled = None
    real, asked = searcher.store.search, []

    def cut(self):
        raise KeyboardInterrupt

    def search(*arguments, **named):
        hits = real(*arguments, **named)
        asked.append(named["column"])
        if len(asked) == questions:
            # As far as a `finish` has come when files have new vectors, and the shared ones stay.
            with pytest.raises(KeyboardInterrupt):
                migration.finish(force=True)
        return hits

    monkeypatch.setattr(Promotion, "drop", cut)

    monkeypatch.setattr(searcher.store, "search", search)
    assert searcher.search(k=3, **sides)[0].id == 7
    assert len(asked) > questions
    migration.close()
