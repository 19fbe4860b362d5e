"""The model of what rows must hold: it passes what is right and finds what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.adversary import models
from tests.adversary.checking import Checker, Finished
from tests.adversary.history import Content, History, Log, Operation
from tests.adversary.maps import Maps
from tests.adversary.steps import do, filled
from tests.adversary.tables.parquet import ParquetTable

from crossfade import Upgrade
from crossfade.migration import Migration

ROWS = 60


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory) -> Path:
    return models.make_upgrade(tmp_path_factory.mktemp("adversary") / "upgrade")


@pytest.fixture(scope="module")
def plan(upgrade) -> Path:
    return models.make_plan(upgrade.with_name("plan"), upgrade)


@pytest.fixture(scope="module")
def maps(upgrade, plan) -> Maps:
    return Maps(upgrade, plan)


def content(text: str, kind: int = 0, vector: object = ...) -> Content:
    made = models.old([text])[0] if vector is ... else vector
    return Content(text, kind, made, (text,))


class Ended:
    """A finished migration of a folder of files, with the log of its application."""

    def __init__(self, folder: Path, upgrade: Path, plan: Path, maps: Maps) -> None:
        self.table, self.maps = ParquetTable(str(folder / "items")), maps
        self.path = folder / "log"
        self.log = Log(self.path)
        rows = {key: content(f"row {key}", key) for key in range(ROWS)}
        self.table.create(rows, indexed=False)
        self.log.begin(rows)
        migration = Migration(folder / "items", upgrade)
        for name in ("start", "forward", "backfill", "verify"):
            assert do(name, migration, str(plan), force=True) == []
        self.filled = frozenset(filled(migration))
        do("finish", migration, str(plan), force=True)

    def problems(self) -> list[tuple[str, int | None]]:
        checker = Checker(self.table, History(self.path), self.maps)
        return [(found.what, found.row) for found in checker.finished(Finished(self.filled))]


@pytest.fixture
def ended(tmp_path, upgrade, plan, maps) -> Ended:
    return Ended(tmp_path, upgrade, plan, maps)


def test_an_undisturbed_migration_is_right(ended):
    assert len(ended.filled) == int(0.6 * ROWS)
    assert ended.problems() == []


def set_vector(ended: Ended, key: int, vector: object) -> None:
    ended.table.set_vector(key, content("", vector=vector))


def lift_a_filled_row(ended: Ended) -> int:
    key = min(ended.filled)
    lifted = ended.maps.lifted(models.old([f"row {key}"])[0])
    set_vector(ended, key, lifted.astype(np.float32))
    return key


def lose(ended: Ended) -> int:
    ended.table.delete(7)
    return 7


def repeat(ended: Ended) -> int:
    ended.table.insert(7, content("row 7", 1_000, np.zeros(models.N, np.float32)))
    return 7


def conjure(ended: Ended) -> int:
    ended.table.insert(999, content("row 999", 999, np.ones(models.N, np.float32)))
    return 999


def change_a_column(ended: Ended) -> int:
    ended.table.set_text(7, content("another"))
    return 7


def empty(ended: Ended) -> int:
    set_vector(ended, 7, None)
    return 7


def turn_a_little(ended: Ended) -> int:
    vector = next(found.vector for found in ended.table.rows() if found.id == 7)
    set_vector(ended, 7, vector + np.float32(1e-3))
    return 7


def undelete(ended: Ended) -> int:
    ended.log.intend(0, Operation("delete", {7: None}))
    ended.log.done(0, {7: models.D})
    return 7


def keep_an_old_text(ended: Ended) -> int:
    """A row that changed after it was filled, as far as the application knows."""
    key = min(ended.filled)
    after = Content("since", key, models.old([f"row {key}"])[0], ("since",))
    ended.log.intend(0, Operation("text", {key: after}))
    ended.log.done(0, {key: models.D})
    ended.table.set_text(key, after)
    return key


PLANTED = {
    "a row is lost": [lose],
    "an id is there more than once": [repeat],
    "a row came from nowhere": [conjure],
    "the application's columns are not what it wrote": [change_a_column],
    "the vector is not that of the row": [
        empty,
        turn_a_little,
        lift_a_filled_row,
        keep_an_old_text,
    ],
    "a deleted row is there": [undelete],
}


@pytest.mark.parametrize(
    ("what", "plant"),
    [(what, plant) for what, plants in PLANTED.items() for plant in plants],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_with_one_row_is_found_in_that_row(ended, what, plant):
    key = plant(ended)
    assert (what, key) in ended.problems()
    assert {row for _, row in ended.problems()} == {key}


def test_what_a_migration_leaves_behind_is_found(ended, tmp_path):
    path = tmp_path / "items" / "part-0.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("crossfade_state", pa.nulls(len(table))), path)
    (tmp_path / "items" / "_crossfade" / ".values.json.tmp-1").write_text("")
    (tmp_path / "items" / ".part-0.parquet").write_text("")
    assert [what for what, _ in ended.problems()] == [
        "left over: crossfade_state",
        "left over: .part-0.parquet",
        "left over: _crossfade/.values.json.tmp-1",
    ]


def test_the_maps_are_those_of_the_upgrade(upgrade, maps):
    """All angles are: how the whole is turned is seen in the migration that is right, above."""
    texts = [f"any {number}" for number in range(20)]
    old, loaded = models.old(texts), Upgrade.load(upgrade)
    lifted, mapped = loaded.forward(old), loaded.backward(models.new(texts))
    mixed = models.BLEND * mapped + (1 - models.BLEND) * lifted
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    theirs = np.concatenate([lifted, mixed])
    filled = [maps.filled(text, vector) for text, vector in zip(texts, old, strict=True)]
    ours = np.array([maps.lifted(vector) for vector in old] + filled)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-5)


@pytest.fixture
def log(tmp_path) -> Log:
    made = Log(tmp_path / "log")
    made.begin({1: content("one"), 2: content("two")})
    return made


def held(path: Path, key: int) -> list[str | None]:
    return [c and c.body for c in History(path).rows[key].may_hold]


def test_an_operation_without_an_outcome_may_have_happened_or_not(log, tmp_path):
    log.intend(0, Operation("both", {1: content("other")}))
    assert held(tmp_path / "log", 1) == ["one", "other"]
    log.done(0, {1: models.D})
    assert held(tmp_path / "log", 1) == ["other"]
    log.intend(1, Operation("delete", {1: None}))
    log.unsure(1, "the connection was lost")
    log.intend(2, Operation("both", {2: content("never")}))
    log.refused(2, "the column is of the new dimension")
    assert held(tmp_path / "log", 1) == ["other", None]
    assert held(tmp_path / "log", 2) == ["two"]


@pytest.mark.parametrize(
    ("dim", "sources"), [(models.D, ("later",)), (models.N, ("later", "one")), (None, None)]
)
def test_a_text_that_changes_after_the_switch_leaves_its_vector(log, tmp_path, dim, sources):
    log.intend(0, Operation("text", {1: content("later")}))
    log.done(0, {1: dim})
    (row,) = History(tmp_path / "log").rows[1].may_hold
    assert row is not None
    assert row.sources == (sources or ("later", "one"))
