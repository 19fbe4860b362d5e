"""Ids in order, a range of them in memory at a time: the same as all of them at once."""

from __future__ import annotations

from collections import Counter

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade.files.arrow import to_arrow
from crossfade.stores import RandomAccess, open_store
from crossfade.stores.lance import store as lance_store
from crossfade.stores.sampling import draw_ids

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


def test_rows_are_drawn_by_chance_from_those_that_are_there(tmp_path):
    path = tmp_path / "drawn.lance"
    table = pa.table({"id": np.arange(200), "vector": to_arrow(np.ones((200, 2), "f4"))})
    lance.write_dataset(table, path, max_rows_per_file=50)
    lance.dataset(path).delete("id % 4 = 0")
    there = {key for key in range(200) if key % 4}
    store = open_store(path)
    assert isinstance(store, RandomAccess)
    assert draw_ids(store, 40, seed=3) == draw_ids(store, 40, seed=3)
    assert sorted(draw_ids(store, 1000)) == sorted(there)
    assert draw_ids(store, 1000) != sorted(there)
    counts = Counter(key for seed in range(400) for key in draw_ids(store, 15, seed))
    # Each is drawn in a tenth of the times, 40 ± 6 of them.
    assert set(counts) == there
    assert min(counts.values()) > 40 - 6 * 6 and max(counts.values()) < 40 + 6 * 6


def test_rows_without_an_id_are_none_of_them_and_an_obstacle(tmp_path, ids, bounded):
    with_none = pa.concat_arrays([ids, pa.array([None, None], ids.type)])
    store = made(tmp_path, with_none)
    wanted = sorted(ids.to_pylist())
    assert [key for rows in store.stream([]) for key in rows["id"].to_pylist()] == wanted
    assert store.duplicates() == []
    assert None not in draw_ids(store, 2 * ROWS)
    (found,) = store.obstacles()
    assert (found.cause, found.final, found.rows) == ("2 rows have no id", True, True)
    assert made(tmp_path / "named", ids).obstacles() == []
