"""Sorting on the disk gives what sorting in memory gives, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossfade.backfill import external, gallery
from crossfade.backfill import ids as module
from crossfade.backfill.external import Runs, by_falling
from crossfade.backfill.ids import Ids
from crossfade.backfill.orders import combined
from crossfade.errors import BadInput

SIZE = 8
shapes = st.sampled_from(["spread", "few", "equal", "far out", "far below", "near"])


def numbers(shape: str, rows: int, seed: int) -> np.ndarray:
    """Values that are hard on whoever cuts their range into equal steps."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=rows)
    if shape == "few":
        values = rng.integers(3, size=rows).astype(float)
    elif shape == "equal":
        values[:] = 2.5
    elif shape in ("far out", "far below") and rows:
        values[rng.integers(rows)] = 1e300 if shape == "far out" else -1e300
    elif shape == "near":
        values = 1.0 + rng.integers(5, size=rows) * 2.0**-52
        values[: rows // 10] *= 1e10
    return values


@settings(deadline=None)
@given(shapes, st.integers(1, 400), st.integers(0, 99), st.booleans())
def test_rows_come_by_falling_value_and_then_by_rank(tmp_path_factory, shape, rows, seed, named):
    values = numbers(shape, rows, seed)
    by = np.random.default_rng(seed + 1).permutation(rows)
    folder = tmp_path_factory.mktemp("sort")
    found = by_falling(values, (lambda some: by[some]) if named else None, folder, size=SIZE)
    expected = np.lexsort((by if named else np.arange(rows), -values))
    assert np.concatenate(list(found)).tolist() == expected.tolist()
    assert not list(folder.iterdir())


def test_memory_holds_a_few_runs_at_most(tmp_path):
    values = numbers("spread", 4000, 0)
    pieces = list(by_falling(values, None, tmp_path, size=200))
    assert max(map(len, pieces)) <= 4 * 200
    equal = list(by_falling(np.zeros(4000), None, tmp_path, size=200))
    assert max(map(len, equal)) <= 200
    outlier = np.where(np.arange(4000) == 7, -1e300, values)
    assert max(map(len, by_falling(outlier, None, tmp_path, size=200))) <= 4 * 200


def test_runs_give_all_numbers_in_order(tmp_path):
    rng = np.random.default_rng(0)
    keys = rng.integers(1 << 63, size=1000, dtype=np.uint64) << np.uint64(1)
    runs = Runs(tmp_path, 64)
    for part in np.array_split(keys, 7):
        runs.add(part)
    found = [np.sort(np.concatenate(pieces)) for pieces in runs.buckets()]
    assert np.array_equal(np.concatenate(found), np.sort(keys))
    runs.close()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def small(monkeypatch):
    """Memory for a hundred rows."""
    for one in (external, module):
        monkeypatch.setattr(one, "IN_MEMORY", 100)
    monkeypatch.setattr(module, "_PIECE", 37)
    monkeypatch.setattr(gallery, "_WRITTEN", 41)
    monkeypatch.setattr(Runs.__init__, "__defaults__", (100,))
    monkeypatch.setattr(by_falling, "__kwdefaults__", {"size": 100})


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_ids_on_the_disk_are_ordered_and_told_apart(small, tmp_path, kind):
    names = [n * 7919 % 1009 for n in range(1000)]
    values = pa.array(names if kind == pa.int64() else [f"id-{n}" for n in names], kind)
    ids = Ids(values, 1000)
    urgency = numbers("few", 1000, 3)
    assert np.array_equal(ids.most_urgent_first(urgency, tmp_path), ids.most_urgent_first(urgency))
    twice = pa.concat_arrays([values[:-1], values[400:401]])
    with pytest.raises(BadInput, match="an id is given twice"):
        Ids(twice, 1000)


def test_two_orders_are_combined_on_the_disk_as_in_memory(small, tmp_path):
    rng = np.random.default_rng(0)
    orders = [rng.permutation(1000) for _ in range(2)]
    places = [np.argsort(order) for order in orders]
    expected = np.argsort(combined(*places))
    assert np.array_equal(gallery._joined(orders, None), expected)
    assert np.array_equal(gallery._joined(orders, tmp_path), expected)
