"""The validation split: stratified, of the share asked for, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.solvers.split import validation_rows

sizes = st.lists(st.integers(2, 40), min_size=2, max_size=20)
shares = st.floats(0.05, 0.6)


def labels_of(sizes, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels)


@given(sizes, shares, st.integers(0, 999))
def test_every_class_held_out_gives_at_least_two_rows(sizes, share, seed):
    labels = labels_of(sizes, seed)
    held = validation_rows(len(labels), labels, share, seed)
    counts = np.bincount(labels[held], minlength=len(sizes))
    assert set(counts) & {1} == set()


@given(sizes, shares, st.integers(0, 999))
def test_about_the_share_is_held_out(sizes, share, seed):
    labels = labels_of(sizes, seed)
    held = validation_rows(len(labels), labels, share, seed)
    # Never more than the share, and less by no more than what cannot make up a pair.
    assert share * len(labels) - 2 <= held.sum() <= max(2, share * len(labels) + 1e-6)


@given(sizes, shares, st.integers(0, 999))
def test_the_seed_decides(sizes, share, seed):
    labels = labels_of(sizes, 0)
    first = validation_rows(len(labels), labels, share, seed)
    assert np.array_equal(first, validation_rows(len(labels), labels, share, seed))


@pytest.mark.parametrize("labels", [None, np.repeat(np.arange(10), 20)])
def test_another_seed_gives_another_split(labels):
    splits = {validation_rows(200, labels, 0.2, seed).tobytes() for seed in range(5)}
    assert len(splits) == 5


def test_large_classes_each_give_their_share():
    labels = labels_of([100, 200, 50], seed=0)
    held = validation_rows(350, labels, 0.2, seed=0)
    assert np.allclose(np.bincount(labels[held]), [20, 40, 10], atol=1)


def test_small_classes_take_turns():
    labels = labels_of([2] * 100, seed=0)
    held = validation_rows(200, labels, 0.2, seed=0)
    assert np.count_nonzero(np.bincount(labels[held])) == 20
    assert held.sum() == 40


@given(st.integers(10, 3000), shares)
def test_without_labels_the_share_is_exact(rows, share):
    expected = max(2, round(min(share * rows, 2000)))
    assert validation_rows(rows, None, share, seed=0).sum() == expected


def test_by_default_a_fifth_of_few_rows_and_a_tenth_of_many():
    assert validation_rows(1000, None, None, seed=0).sum() == 200
    assert validation_rows(10_000, None, None, seed=0).sum() == 1000
    assert validation_rows(100_000, None, None, seed=0).sum() == 2000


@given(st.lists(st.integers(2, 4), min_size=2, max_size=3), st.integers(0, 99))
def test_few_labelled_rows_still_leave_some_on_either_side(sizes, seed):
    labels = labels_of(sizes, seed)
    held = validation_rows(len(labels), labels, None, seed)
    assert 0 < held.sum() < len(labels)
    assert np.bincount(labels[held]).max() >= 2


@pytest.mark.parametrize("labels", [None, np.array([0, 0, 1, 1])])
def test_a_large_share_leaves_something_to_learn_from(labels):
    held = validation_rows(4, labels, 0.99, seed=0)
    assert held.sum() < 4
