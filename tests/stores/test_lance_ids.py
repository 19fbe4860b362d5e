"""Ids in order, a range of them in memory at a time: the same as all of them at once."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import open_store
from crossfade.stores.lance import store as lance_store

ROWS = 1000


def named(kind: str, numbers) -> pa.Array:
    if kind == "text":
        return pa.array([f"it's {n}" for n in numbers])
    return pa.array(numbers, getattr(pa, kind)())


@pytest.fixture(params=["int64", "int32", "uint64", "text"])
def ids(request) -> pa.Array:
    numbers = np.random.default_rng(0).permutation(ROWS)
    if request.param.startswith("int"):
        numbers -= ROWS // 2
    return named(request.param, numbers.tolist())


def made(tmp_path, ids: pa.Array):
    vectors = np.zeros((len(ids), 4), np.float32)
    table = pa.table({"id": ids, "vector": to_arrow(vectors)})
    lance.write_dataset(table, tmp_path / "items.lance", max_rows_per_file=300)
    return open_store(tmp_path / "items.lance")


@pytest.fixture(params=["all at once", "a range at a time"])
def bounded(request, monkeypatch):
    if request.param == "a range at a time":
        monkeypatch.setattr(lance_store, "_SORTED", 150)
        monkeypatch.setattr(lance_store, "_SAMPLED", 200)


def test_rows_come_in_the_order_of_their_ids(tmp_path, ids, bounded):
    store = made(tmp_path, ids)
    wanted = sorted(ids.to_pylist())
    batches = list(store.stream(["vector"], size=64))
    assert [key for rows in batches for key in rows["id"].to_pylist()] == wanted
    assert all(len(rows) <= 64 for rows in batches)


def test_a_stream_goes_on_after_an_id(tmp_path, ids, bounded):
    store, wanted = made(tmp_path, ids), sorted(ids.to_pylist())
    rest = [key for rows in store.stream([], after=wanted[400]) for key in rows["id"].to_pylist()]
    assert rest == wanted[401:]
    assert list(store.stream([], after=wanted[-1])) == []


def test_ids_that_are_there_twice_are_named(tmp_path, ids, bounded):
    assert made(tmp_path / "once", ids).duplicates() == []
    again = sorted(ids.to_pylist())[100:900:160]
    twice = pa.concat_arrays([ids, pa.array(again, ids.type), pa.array(again, ids.type)])
    assert made(tmp_path / "twice", twice).duplicates() == again


def test_of_very_many_the_first_are_named(tmp_path, bounded):
    ids = named("int64", [n % 100 for n in range(ROWS)])
    assert made(tmp_path, ids).duplicates() == list(range(10))


def test_an_empty_table_has_none(tmp_path):
    store = made(tmp_path, named("int64", []))
    assert store.duplicates() == []
    assert list(store.stream(["vector"])) == []
