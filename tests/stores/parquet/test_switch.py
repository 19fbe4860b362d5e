"""Parquet files change places with their successors, and back, and no file of the application is
lost on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stores.apps import ParquetApp, idle
from tests.stores.parquet.conftest import ADDED, DIM, SHARED, rows, shared

from crossfade.errors import StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import open_store
from crossfade.stores.parquet import promote as parquet_promote

KEYS = range(40)
COLUMNS = ["vector", "crossfade_vector", "crossfade_state"]


def table(keys, dim=DIM) -> pa.Table:
    vectors = to_arrow(np.full((len(keys), dim), 2, np.float32))
    bodies = [f"text {key}" for key in keys]
    return pa.table({"id": keys, "body": bodies, "kind": [0] * len(keys), "vector": vectors})


@pytest.fixture
def app(tmp_path):
    made = ParquetApp(tmp_path)
    old = np.ones((len(KEYS), DIM), np.float32)
    made.create(list(KEYS), [f"text {i}" for i in KEYS], [0] * len(KEYS), old)
    return made


@pytest.fixture
def store(app):
    made = open_store(app.address)
    made.add_columns(ADDED)
    made.write(rows(KEYS, 3))
    return made


def work(batch):
    """Give rows that have no shared vector one of nines."""
    late = batch.filter(batch["crossfade_state"].is_null())
    if not len(late):
        return None
    return pa.RecordBatch.from_pydict(
        {
            "id": late["id"],
            "crossfade_vector": to_arrow(np.full((len(late), SHARED), 9, np.float32)),
            "crossfade_state": pa.repeat("9", len(late)),
            "crossfade_token": late["crossfade_token"],
        }
    )


def promote(store, **more):
    given = {"columns": COLUMNS, "work": work} | more
    return store.promote("crossfade_vector", ["crossfade_state"], **given)


def vectors_of(app) -> dict[int, np.ndarray]:
    return app.old()


def replaced(app, name: str, made: pa.Table) -> None:
    pq.write_table(made, app.folder / ".new")
    (app.folder / ".new").replace(app.folder / name)


def test_a_file_that_comes_with_old_vectors_while_it_finishes_is_lifted(app, store):
    done = []

    def late(batch):
        if not done:
            done.append(True)
            replaced(app, "zz.parquet", table([900, 901]))
        return work(batch)

    promote(store, work=late)
    found = vectors_of(app)
    assert sorted(found) == [*KEYS, 900, 901]
    assert found[900].tolist() == found[901].tolist() == [9.0] * SHARED
    np.testing.assert_array_equal(found[5], shared([5], 3)[0])


def test_a_file_that_comes_with_new_vectors_is_left_alone(app, store):
    replaced(app, "aa.parquet", table([900], dim=SHARED))
    # In the middle of it: as an application does that has changed over already.
    parquet_promote.Promotion(app.folder, app.folder / "_crossfade").begin(DIM)
    promote(store)
    assert vectors_of(app)[900].tolist() == [2.0] * SHARED


def test_a_file_that_is_replaced_in_the_instant_of_the_change_is_not_lost(app, store, monkeypatch):
    real, instants = parquet_promote.exchange, []

    def exchange(fresh, path):
        if not instants and path.name == "part-0.parquet":
            instants.append(path)
            # The application is faster by the blink of an eye.
            replaced(app, path.name, table([*range(25), 950]))
        return real(fresh, path)

    monkeypatch.setattr(parquet_promote, "exchange", exchange)
    promote(store)
    assert instants
    found = vectors_of(app)
    assert sorted(found) == [*KEYS, 950]
    assert found[950].tolist() == [9.0] * SHARED
    assert open_store(app.address).describe().added == ()


@pytest.mark.parametrize("after", range(5))
def test_what_was_put_in_place_is_undone_to_the_last_byte(app, store, monkeypatch, after):
    paths = sorted(app.folder.glob("*.parquet"))
    before = [path.read_bytes() for path in paths]
    real, left = parquet_promote.exchange, [after]

    def exchange(fresh, path):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        done = real(fresh, path)
        if after == 4 and left[0] == 3:
            # Killed between the change and what follows it.
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(parquet_promote, "exchange", exchange)
    try:
        promote(store)
    except KeyboardInterrupt:
        again = open_store(app.address)
        again.withdraw("crossfade_vector")
        again.withdraw("crossfade_vector")
        assert [path.read_bytes() for path in paths] == before
        again.drop_columns(["crossfade_vector", "crossfade_state"])
        kept = {path.name for path in (app.folder / "_crossfade").iterdir()}
        assert kept <= {"columns.json", "values.json", "lock"}
    else:
        with pytest.raises(StoreError, match="gone"):
            store.withdraw("crossfade_vector")


def test_where_files_cannot_change_places_in_one_step_they_are_kept_all_the_same(
    app, store, monkeypatch
):
    monkeypatch.setattr(parquet_promote, "exchange", lambda *_: False)
    before = {path: path.read_bytes() for path in app.folder.glob("*.parquet")}
    drop = parquet_promote.Promotion.drop

    def cut(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet_promote.Promotion, "drop", cut)
    with pytest.raises(KeyboardInterrupt):
        promote(store)
    assert vectors_of(app)[0].shape == (SHARED,)
    store.withdraw("crossfade_vector")
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.setattr(parquet_promote.Promotion, "drop", drop)
    promote(store)
    assert vectors_of(app)[0].shape == (SHARED,)


def test_a_switch_is_not_undone_over_files_of_new_vectors(app, store, monkeypatch):
    def cut(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet_promote.Promotion, "drop", cut)
    with pytest.raises(KeyboardInterrupt):
        promote(store)
    monkeypatch.undo()
    replaced(app, "new.parquet", table([900], dim=SHARED))
    with pytest.raises(StoreError, match=r"new\.parquet.*new vectors"):
        store.withdraw("crossfade_vector")
    promote(store, work=idle)
    assert vectors_of(app)[900].tolist() == [2.0] * SHARED
    assert not (Path(app.address) / "_crossfade" / "old").exists()
