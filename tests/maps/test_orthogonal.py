"""B⊥ = exp(P): a rotation, in numpy and in torch, and the polar factor nearest to a matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from crossfade.maps.orthogonal import (
    Orthogonal,
    cayley_tensor,
    exp_tensor,
    nearest_orthogonal,
    skew_tensor,
)


@st.composite
def parameters(draw, largest=6):
    n = draw(st.integers(1, largest))
    size = n * (n - 1) // 2
    upper = draw(st.lists(st.floats(-20, 20), min_size=size, max_size=size))
    return np.array(upper), n


def skew_by_hand(upper, n):
    p, values = np.zeros((n, n)), iter(upper)
    for i in range(n):
        for j in range(i + 1, n):
            p[i, j] = next(values)
            p[j, i] = -p[i, j]
    return p


def square(upper, n):
    """The parameters as training keeps them: a matrix of which only the upper triangle counts."""
    out = np.full((n, n), 7.0)
    out[np.triu_indices(n, 1)] = upper
    return torch.from_numpy(out)


def check_rotation(b, tolerance=1e-9):
    n = len(b)
    assert np.allclose(b @ b.T, np.eye(n), atol=tolerance)
    assert np.linalg.det(b) == pytest.approx(1.0, abs=tolerance)


@given(parameters())
def test_skew_has_the_parameters_in_its_upper_triangle(case):
    assert np.array_equal(skew_tensor(square(*case)).numpy(), skew_by_hand(*case))


@given(parameters())
def test_exp_tensor_is_a_rotation_and_the_matrix_exponential(case):
    b = exp_tensor(square(*case)).numpy()
    check_rotation(b)
    # An independent way: i·P is Hermitian, so exp(P) follows from its eigenvalues.
    values, vectors = np.linalg.eigh(1j * skew_by_hand(*case))
    by_eigenvalues = (vectors * np.exp(-1j * values)) @ vectors.conj().T
    assert np.allclose(b, by_eigenvalues.real, atol=1e-9)
    assert np.allclose(b, scipy.linalg.expm(skew_by_hand(*case)), atol=1e-9)


@given(parameters())
def test_cayley_tensor_is_a_rotation(case):
    b = cayley_tensor(square(*case)).numpy()
    check_rotation(b)
    half = skew_by_hand(*case) / 2
    eye = np.eye(case[1])
    assert np.allclose((eye - half) @ b, eye + half, atol=1e-8)


@given(parameters(), st.integers(0, 5))
def test_rows_of_cayley_tensor_are_its_first_ones(case, rows):
    whole = cayley_tensor(square(*case)).numpy()
    assert np.allclose(cayley_tensor(square(*case), rows).numpy(), whole[:rows], atol=1e-9)


def test_cayley_agrees_with_exp_to_second_order():
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 5)))
    gaps = [
        float((exp_tensor(direction * h) - cayley_tensor(direction * h)).norm())
        for h in (1e-2, 1e-3)
    ]
    # The first difference is of third order: a tenth of the step, a thousandth of the gap.
    assert gaps[0] / gaps[1] == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("step", [exp_tensor, cayley_tensor])
def test_gradients_agree_with_finite_differences(step):
    rng = np.random.default_rng(1)
    upper = torch.tensor(rng.normal(size=(4, 4)), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(step, (upper,))


@given(st.integers(1, 8), st.integers(0, 1000), st.sampled_from([0.0, 1e-7, 1e-3, 0.05, 1.0]))
def test_nearest_orthogonal_is_orthogonal_and_nearer_than_any_other(n, seed, noise):
    rng = np.random.default_rng(seed)
    near = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = near + noise * rng.normal(size=(n, n))
    nearest = nearest_orthogonal(matrix)
    assert np.allclose(nearest @ nearest.T, np.eye(n), atol=1e-11)
    polar, _ = scipy.linalg.polar(matrix)
    assert np.allclose(nearest, polar, atol=1e-6)
    if n > 1:
        others = ortho_group(n, seed=seed).rvs(20)
        distances = np.linalg.norm(others - matrix, axis=(1, 2))
        assert np.linalg.norm(nearest - matrix) <= distances.min()


def test_the_map_keeps_lengths_and_angles():
    rng = np.random.default_rng(2)
    turn = Orthogonal(ortho_group.rvs(8, random_state=rng).astype(np.float32))
    x = rng.normal(size=(20, 8)).astype(np.float32)
    y = turn(x)
    assert np.allclose(y @ y.T, x @ x.T, atol=1e-4)
    assert (turn.in_dim, turn.out_dim) == (8, 8)
