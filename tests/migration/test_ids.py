"""Rows are known by their ids: two of one id are refused, at the start and whenever they come."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.migration.conftest import ROWS, D, Function, Models, texts_of
from tests.stores.apps import LanceApp, ParquetApp

from crossfade.errors import BadInput, CrossfadeError
from crossfade.migration import Migration


def make(app, models: Models, keys: list[int]) -> None:
    texts = texts_of(len(keys))
    app.create(keys, texts, [ord(t[0]) for t in texts], models.old(texts))


@pytest.mark.parametrize("kind", [LanceApp, ParquetApp])
def test_start_refuses_them_and_names_them(kind, models, upgrade_folder, tmp_path):
    app = kind(tmp_path)
    make(app, models, [*range(ROWS), 17])
    with pytest.raises(BadInput, match=r"\b17\b"):
        Migration(app.address, upgrade_folder).start(source="body", force=True)
    assert len(app.old()) == ROWS


def test_those_that_come_later_are_refused_by_every_step_that_would_go_by_them(
    models, upgrade_folder, plan_folder, tmp_path
):
    app = LanceApp(tmp_path)
    make(app, models, list(range(ROWS)))
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    text = texts_of(1, seed=4)
    app.insert([17], text, [0], models.old(text))
    with pytest.raises(BadInput, match=r"same id: 17"):
        migration.forward()
    with pytest.raises(BadInput, match=r"same id: 17"):
        migration.backfill(Function(models), plan=plan_folder, labels="kind", share=1.0)
    found = migration.verify()
    assert not found.passed
    assert "17" in next(c.detail for c in found.checks if c.name == "ids")
    with pytest.raises(BadInput, match=r"same id: 17"):
        migration.finish(force=True)
    # Both rows are as the application wrote them.
    table = app._open().to_arrow()
    twice = [row["body"] for row in table.to_pylist() if row["id"] == 17]
    assert sorted(twice) == sorted([texts_of(ROWS)[17], *text])
    migration.rollback()


def test_rows_without_an_id_are_refused_at_the_start_and_when_they_come(
    models, upgrade_folder, tmp_path
):
    app = LanceApp(tmp_path)
    make(app, models, list(range(ROWS)))
    text = texts_of(1, seed=4)

    def insert_nameless() -> None:
        kept = app._open().to_arrow().schema
        row = {"id": None, "body": text[0], "kind": 0, "vector": models.old(text)[0].tolist()}
        app._open().add(pa.Table.from_pylist([row], kept.remove_metadata()))

    def drop_nameless() -> None:
        app._open().delete("id IS NULL")

    insert_nameless()
    migration = Migration(app.address, upgrade_folder)
    with pytest.raises(BadInput, match="1 rows have no id"):
        migration.start(source="body", force=True)
    drop_nameless()
    migration.start(source="body", force=True)
    migration.forward()
    assert migration.verify().passed
    insert_nameless()
    found = migration.verify()
    assert not found.passed
    ids = next(check for check in found.checks if check.name == "ids")
    assert (ids.passed, ids.detail) == (False, "1 rows have no id")
    for force in (False, True):
        with pytest.raises(CrossfadeError, match="1 rows have no id"):
            migration.finish(force=force)
    # Nothing was taken away yet.
    assert len(app.old()) == ROWS + 1
    assert {len(vector) for vector in app.old().values()} == {D}
    drop_nameless()
    assert migration.verify().passed
    migration.rollback()
