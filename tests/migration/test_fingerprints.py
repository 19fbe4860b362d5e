"""What tells a row that changed from one that did not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossfade.migration.batch import differ, fingerprints, source_prints

CHANGES = 200_000


def test_of_two_hundred_thousand_changed_texts_all_are_seen():
    before = source_prints([f"text {i}" for i in range(CHANGES)])
    after = source_prints([f"text {i}, changed" for i in range(CHANGES)])
    assert not (before == after).any()
    assert len(np.unique(before)) == CHANGES


def test_of_two_hundred_thousand_changed_vectors_all_are_seen():
    rng = np.random.default_rng(0)
    before = fingerprints(rng.normal(size=(CHANGES, 8)).astype(np.float32))
    after = fingerprints(rng.normal(size=(CHANGES, 8)).astype(np.float32))
    assert differ(before, after).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6), st.floats(1.001, 1e3))
def test_a_change_of_length_is_seen_and_rounding_is_not(seed, length, factor):
    x = np.random.default_rng(seed).normal(size=(1, 16)).astype(np.float32) * np.float32(length)
    assert differ(fingerprints(x), fingerprints(x * np.float32(factor))).all()
    assert differ(fingerprints(x), fingerprints(x / np.float32(factor))).all()
    assert not differ(fingerprints(x), fingerprints(np.nextafter(x, np.float32(0)))).any()
