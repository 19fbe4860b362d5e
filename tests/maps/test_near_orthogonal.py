"""‖WWᵀ−I‖_F and the angles between columns, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ortho_group

from crossfade.maps.near_orthogonal import column_angles, deviation

squares = st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(-3, 3)))


@given(squares)
def test_deviation_is_the_frobenius_norm_of_the_gram_matrix_less_one(weight):
    total = 0.0
    for i, a in enumerate(weight):
        for j, b in enumerate(weight):
            inner = sum(x * y for x, y in zip(a, b, strict=True))
            total += (inner - (i == j)) ** 2
    assert deviation(weight) == pytest.approx(math.sqrt(total), abs=1e-9)


def test_deviation_of_a_rotation_is_round_off():
    rotation = ortho_group.rvs(10, random_state=0)
    assert deviation(rotation) < 1e-13
    assert deviation(2 * rotation) == pytest.approx(3 * math.sqrt(10))


def test_deviation_does_not_change_its_argument():
    weight = np.eye(3) * 2
    deviation(weight)
    assert np.array_equal(weight, np.eye(3) * 2)


@given(
    st.integers(2, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(0.125, 3)))
)
def test_column_angles_are_those_between_all_pairs_of_columns(weight):
    expected = []
    for i in range(weight.shape[1]):
        for j in range(i + 1, weight.shape[1]):
            a, b = weight[:, i], weight[:, j]
            cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
            expected.append(math.degrees(math.acos(min(1.0, max(-1.0, cosine)))))
    # arccos loses half its digits where columns are parallel.
    assert np.allclose(column_angles(weight), expected, atol=1e-5)


def test_columns_of_a_rotation_stand_at_right_angles():
    rotation = ortho_group.rvs(6, random_state=1)
    assert np.allclose(column_angles(rotation), 90)
