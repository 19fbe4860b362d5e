"""What is compiled, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.backfill import rows

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_every_float16_is_widened_exactly(monkeypatch, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    found = rows.widened(EVERY)
    expected = EVERY.astype(np.float32)
    finite = np.isfinite(expected)
    assert np.array_equal(found[finite], expected[finite])
    assert np.isnan(found[~finite]).all()


def test_room_that_is_given_is_used():
    room = np.empty((300, 256), np.float32)
    found = rows.widened(EVERY[:7], room)
    assert found.base is room
    assert np.array_equal(found, EVERY[:7].astype(np.float32))


def test_wider_vectors_are_taken_as_they_are():
    x = np.ones((3, 2), np.float32)
    assert rows.widened(x) is x
    assert rows.widened(x.astype(np.float64)).dtype == np.float32


@pytest.mark.parametrize("close", [1, 5000, 1 << 20])
def test_parts_are_the_rows_widened(monkeypatch, close):
    monkeypatch.setattr(rows, "_CLOSE_BYTES", close)
    found = np.zeros(EVERY.shape, np.float32)
    seen = []
    for here, part in rows.wide_parts(EVERY):
        found[here] = part
        seen += range(here.start, here.stop)
    assert seen == list(range(256))
    assert np.array_equal(found, rows.widened(EVERY), equal_nan=True)
    wide = np.ones((3, 2))
    ((here, part),) = rows.wide_parts(wide)
    assert (here, part.dtype, part.tolist()) == (slice(0, 3), np.float32, wide.tolist())
    assert [len(part) for _, part in rows.wide_parts(EVERY[:0])] == []


def test_gaps_and_cosines_are_those_of_numpy():
    rng = np.random.default_rng(0)
    x, means = (rng.normal(size=(n, 33)).astype("f4") for n in (200, 7))
    x[5] = 0
    codes = rng.integers(7, size=200)
    own = means[codes].astype(np.float64)
    found = np.empty(200)
    rows.squared_gaps(x, means, codes, found)
    assert np.allclose(found, ((x - own) ** 2).sum(axis=1), rtol=1e-5)
    rows.cosines(x, means, codes, found)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(own, axis=1)
    expected = np.divide((x * own).sum(axis=1), lengths, out=np.zeros(200), where=lengths > 0)
    assert np.allclose(found, expected, atol=1e-6)
    # The same for a row alone as among others.
    alone = np.empty(1)
    rows.squared_gaps(x[9:10], means, codes[9:10], alone)
    rows.squared_gaps(x, means, codes, found)
    assert alone[0] == found[9]
