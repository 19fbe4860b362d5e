"""The borders of the spaces: lengths, bad rows, cutting and padding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crossfade.errors import BadInput, BadRow
from crossfade.spaces import Side, cosine, fit_dim, inverse_norms

numbers = st.floats(-1000, 1000, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=numbers))
def test_inverse_norms_are_those_of_a_loop(x):
    lengths = [math.sqrt(sum(float(v) ** 2 for v in row)) for row in x]
    if 0 in lengths:
        with pytest.raises(BadRow) as caught:
            inverse_norms(x, "old")
        assert caught.value.row == lengths.index(0)
    else:
        assert np.allclose(inverse_norms(x, "old"), [1 / v for v in lengths], rtol=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_beyond_the_squares_of_float32_are_found(size):
    x = np.array([[3.0, 4.0], [3 * size, 4 * size]], dtype=np.float32)
    assert np.allclose(inverse_norms(x, "old"), [0.2, 0.2 / size], rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([np.nan, 1], "has a NaN"),
        ([np.nan, np.inf], "has a NaN"),
        ([-np.inf, 1], "has an infinite value"),
        ([0, 0], "is all zeros"),
    ],
)
def test_the_first_bad_row_is_named(values, problem):
    x = np.ones((6, 2), dtype=np.float32)
    x[2], x[4] = values, np.nan
    with pytest.raises(BadRow) as caught:
        inverse_norms(x, "new")
    assert str(caught.value) == f"row 2 of 'new' {problem} → drop it or re-embed it"
    assert (caught.value.row, caught.value.side) == (2, "new")


@given(st.integers(1, 8), st.integers(1, 8))
def test_fit_dim_cuts_or_pads(have, want):
    x = np.random.default_rng(0).normal(size=(3, have)).astype(np.float32)
    expected = np.pad(x, ((0, 0), (0, want)))[:, :want]
    assert np.array_equal(fit_dim(x, want), expected)


def test_cosine():
    assert cosine(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(math.sqrt(0.5))
    assert cosine(np.array([0.0, 0.0]), np.array([1.0, 0.0])) == 0.0


def sides(old_mean, new_mean):
    old = Side("old", len(old_mean), "l2", np.array(old_mean, np.float32))
    new = Side("new", len(new_mean), "l2", np.array(new_mean, np.float32))
    return old, new


def around(mean, rows=200):
    return np.array(mean) + 0.1 * np.random.default_rng(0).normal(size=(rows, len(mean)))


def test_a_mean_of_the_other_side_gives_the_side_away():
    old, new = sides([1.0, 0, 0], [0, 1.0, 0])
    with pytest.raises(BadInput, match=r"look like new vectors, but forward reads old .*backward"):
        old.check_fingerprint(around([0, 1.0, 0]), new)
    old.check_fingerprint(around([1.0, 0, 0]), new)
    # Of a third model nothing is known.
    old.check_fingerprint(around([0, 0, 1.0]), new)


def test_sides_with_one_mean_cannot_be_told_apart_and_nothing_is_refused():
    old, new = sides([1.0, 0.1, 0], [1.0, 0, 0.1])
    old.check_fingerprint(around([1.0, 0, 0.1]), new)


def test_a_few_rows_are_never_refused_on_their_mean():
    old, new = sides([1.0, 0, 0], [0, 1.0, 0])
    old.check_fingerprint(around([0, 1.0, 0], rows=10), new)
