"""Procrustes and ridge against SciPy and scikit-learn, from moments gathered in any batches."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.linear_model import Ridge

from crossfade.maps import Affine, NearOrthogonal, Orthogonal
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.closed_form import (
    PENALTIES,
    as_kind,
    at_distance,
    backward_map,
    backward_ridge,
    choose_ridge,
    compose,
    procrustes,
    ridge,
)
from crossfade.solvers.moments import Moments, principal_axes

dims = st.integers(1, 7)
seeds = st.integers(0, 999)


def vectors(rows, d, n, seed=0):
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(rows, 4))
    old = items @ rng.normal(size=(4, d)) + 0.3 * rng.normal(size=(rows, d)) + 1
    new = items @ rng.normal(size=(4, n)) + 0.3 * rng.normal(size=(rows, n)) - 1
    return old.astype(np.float32), new.astype(np.float32)


def moments_of(old, new, batch=1000):
    batches = [(old[i : i + batch], new[i : i + batch]) for i in range(0, len(old), batch)]
    return Moments.of(batches, old.shape[1], new.shape[1])


def fitted_to(old, n):
    out = np.zeros((len(old), n))
    out[:, : min(old.shape[1], n)] = old[:, :n]
    return out


@given(dims, dims, st.integers(1, 30), seeds)
def test_moments_do_not_depend_on_the_batches(d, n, batch, seed):
    old, new = vectors(50, d, n, seed)
    found = moments_of(old, new, batch)
    x, z = old.astype(np.float64), new.astype(np.float64)
    assert found.rows == 50
    expected = (x.sum(0), z.sum(0), x.T @ x, z.T @ x, z.T @ z)
    for name, value in zip(("old", "new", "old_old", "new_old", "new_new"), expected, strict=True):
        assert np.allclose(getattr(found, name), value, rtol=1e-5, atol=1e-3), name


def test_moments_of_rotated_old_vectors():
    old, new = vectors(60, 5, 4)
    rotation = ortho_group(5, seed=1).rvs()
    found = moments_of(old, new).rotated(rotation)
    turned = moments_of((old @ rotation.T).astype(np.float32), new)
    for name in ("old", "new", "old_old", "new_old", "new_new"):
        assert np.allclose(getattr(found, name), getattr(turned, name), rtol=1e-4, atol=1e-2), name


@given(dims, dims, seeds)
def test_procrustes_is_as_good_as_scipys_on_padded_or_cut_old_vectors(d, n, seed):
    old, new = vectors(40, d, n, seed)
    w = procrustes(moments_of(old, new).new_old)
    assert np.allclose(w @ w.T, np.eye(n), atol=1e-10)
    target, source = fitted_to(old, n), new.astype(np.float64)
    reference = scipy.linalg.orthogonal_procrustes(source, target)[0].T

    def objective(matrix):
        return np.sum((source @ matrix.T - target) ** 2)

    # The moments hold products of float32 numbers, so the optimum is found to that accuracy.
    assert objective(w) == pytest.approx(objective(reference), rel=1e-5)
    if n > 1:
        others = ortho_group(n, seed=seed).rvs(10)
        assert objective(w) <= min(map(objective, others)) * (1 + 1e-6)


def test_procrustes_is_scipys_where_both_have_one_answer():
    old, new = vectors(200, 6, 6)
    rng = np.random.default_rng(0)
    new = (old @ ortho_group(6, seed=3).rvs().T + 0.1 * rng.normal(size=(200, 6))).astype("f4")
    expected = scipy.linalg.orthogonal_procrustes(new.astype("f8"), old.astype("f8"))[0].T
    assert np.allclose(procrustes(moments_of(old, new).new_old), expected, atol=1e-4)


@pytest.mark.parametrize("reflected", [False, True])
def test_procrustes_finds_a_rotation_or_reflection_that_was_there(reflected):
    truth = ortho_group(5, seed=2).rvs()
    if (np.linalg.det(truth) < 0) != reflected:
        truth[0] *= -1
    new = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    old = (new @ truth.T).astype(np.float32)
    found = procrustes(moments_of(old, new).new_old)
    assert np.allclose(found, truth, atol=1e-5)
    assert np.linalg.det(found) == pytest.approx(-1 if reflected else 1)


@given(dims, dims, seeds, st.floats(1e-5, 10))
def test_ridge_is_scikit_learns(d, n, seed, penalty):
    old, new = vectors(60, d, n, seed)
    ((weight, bias),) = ridge(moments_of(old, new), [penalty])
    x = old.astype(np.float64)
    variance = np.sum((x - x.mean(axis=0)) ** 2) / d
    reference = Ridge(alpha=penalty * variance, fit_intercept=True).fit(x, new.astype(np.float64))
    assert np.allclose(weight, reference.coef_.reshape(n, d), rtol=1e-3, atol=2e-3)
    assert np.allclose(bias, reference.intercept_, rtol=1e-3, atol=5e-3)


def test_ridge_answers_each_penalty_as_it_would_alone():
    moments = moments_of(*vectors(60, 5, 4))
    together = ridge(moments, [0.1, 1.0])
    for penalty, (weight, bias) in zip([0.1, 1.0], together, strict=True):
        ((alone_weight, alone_bias),) = ridge(moments, [penalty])
        assert np.array_equal(weight, alone_weight)
        assert np.array_equal(bias, alone_bias)


def test_the_penalty_with_the_least_held_out_error_is_chosen():
    old, new = vectors(40, 6, 5)
    held_old, held_new = vectors(300, 6, 5)
    moments = moments_of(old, new)
    penalty, weight, bias = choose_ridge(moments, held_old, held_new)
    variance = np.sum((old - old.mean(axis=0)) ** 2) / 6
    errors = {}
    for candidate in PENALTIES:
        reference = Ridge(alpha=candidate * variance).fit(old.astype("f8"), new.astype("f8"))
        errors[candidate] = np.mean((reference.predict(held_old) - held_new) ** 2)
    assert penalty == min(errors, key=errors.get)
    assert np.mean((held_old @ weight.T + bias - held_new) ** 2) == pytest.approx(
        errors[penalty], rel=1e-3
    )


@pytest.mark.parametrize("kind", ["orthogonal", "near-orthogonal", "affine"])
def test_b_after_ridge_is_the_ridge_onto_b_of_new(kind):
    old, new = vectors(80, 5, 6)
    moments = moments_of(old, new)
    rng = np.random.default_rng(1)
    matrix = ortho_group(6, seed=0).rvs() if kind == "orthogonal" else rng.normal(size=(6, 6))
    backward = as_kind(matrix, kind, None if kind == "orthogonal" else rng.normal(size=6))
    ((weight, bias),) = ridge(moments, [0.05])
    composed = compose(backward, weight, bias)
    ((direct_weight, direct_bias),) = ridge(moments_of(old, backward(new)), [0.05])
    assert isinstance(composed, Affine)
    assert np.allclose(composed.weight, direct_weight, atol=1e-4)
    assert np.allclose(composed.bias, direct_bias, atol=1e-3)


@given(st.integers(2, 8), seeds)
def test_principal_axes_are_the_right_singular_vectors(d, seed):
    old, new = vectors(50, d, 3, seed)
    axes = principal_axes(moments_of(old, new))
    assert np.allclose(axes @ axes.T, np.eye(d), atol=1e-10)
    turned = old.astype(np.float64) @ axes.T
    singular = np.linalg.svd(old.astype(np.float64), compute_uv=False)
    # The first k coordinates keep all that any k can: the energy of the first k singular values.
    assert np.allclose(np.sum(turned**2, axis=0), singular**2, rtol=1e-3, atol=1e-2)


def test_at_distance_stops_where_lambda_is_reached():
    rotation = ortho_group(6, seed=0).rvs()
    weight = rotation + np.random.default_rng(0).normal(size=(6, 6))
    for lam in (0.0, 0.5, 2.0, 5.0):
        t = at_distance(rotation, weight, lam)
        reached = deviation((1 - t) * rotation + t * weight)
        assert reached == pytest.approx(lam, abs=1e-6)
    assert at_distance(rotation, weight, deviation(weight) + 1) == 1.0
    assert at_distance(rotation, weight, np.inf) == 1.0


@pytest.mark.parametrize(("d", "n"), [(4, 6), (6, 6), (8, 6)])
def test_the_affine_b_is_the_ridge_from_new_to_old(d, n):
    old, new = vectors(200, d, n)
    moments = moments_of(old, new)
    rotation = procrustes(moments.new_old)
    weight, bias = backward_ridge(moments, rotation, penalty=1e-3)
    z = new.astype(np.float64)
    variance = np.sum((z - z.mean(axis=0)) ** 2) / n
    reached = min(d, n)
    reference = Ridge(alpha=1e-3 * variance).fit(z, old[:, :reached].astype(np.float64))
    assert weight.shape == (n, n)
    assert np.allclose(weight[:reached], reference.coef_, atol=2e-3)
    assert np.allclose(bias[:reached], reference.intercept_, atol=5e-3)
    assert np.array_equal(weight[reached:], rotation[reached:])
    assert not bias[reached:].any()


def test_the_backward_map_is_of_the_kind_asked_for():
    moments = moments_of(*vectors(200, 5, 6))
    rotation = procrustes(moments.new_old)
    orthogonal = backward_map("orthogonal", moments, rotation, 1.0)
    near = backward_map("near-orthogonal", moments, rotation, 0.7)
    affine = backward_map("affine", moments, rotation, 1.0)
    assert [type(m) for m in (orthogonal, near, affine)] == [Orthogonal, NearOrthogonal, Affine]
    assert np.array_equal(orthogonal.weight, rotation.astype(np.float32))
    assert deviation(affine.weight) > 0.7
    assert deviation(near.weight) == pytest.approx(0.7, abs=1e-4)
    free = backward_map("near-orthogonal", moments, rotation, np.inf)
    assert np.allclose(free.weight, affine.weight)
    assert np.allclose(free.bias, affine.bias)
