"""The baselines with a closed form, against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import sklearn.linear_model

from crossfade.baselines import DriftAdapter, Procrustes, Ridge
from crossfade.solvers.split import validation_rows


def unit(x):
    x = np.asarray(x, np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def training(data):
    """The rows a fit learns from, of unit length, as float64."""
    held = validation_rows(len(data.old), data.labels, None, seed=0)
    return unit(data.old[~held]), unit(data.new[~held])


def test_procrustes_is_scipys(made):
    data = made(d=6, n=6)
    old, new = training(data)
    expected, _ = scipy.linalg.orthogonal_procrustes(new, old)
    assert np.allclose(Procrustes().fit(*data).backward_.map.weight, expected.T, atol=1e-4)


def test_procrustes_leaves_old_as_it_is_and_pads_it(made):
    data = made(d=6, n=8)
    fitted = Procrustes().fit(*data)
    padded = np.pad(unit(data.old), ((0, 0), (0, 2)))
    assert np.allclose(fitted.forward(data.old), padded, atol=1e-6)


def test_ridge_is_scikit_learns_at_the_penalty_it_chose(made):
    data = made(rows=200)
    fitted = Ridge().fit(*data)
    old, new = training(data)
    variance = ((old - old.mean(axis=0)) ** 2).sum() / old.shape[1]
    penalty = fitted.config_.fit["ridge_penalty"] * variance
    expected = sklearn.linear_model.Ridge(alpha=penalty).fit(old, new)
    assert np.allclose(fitted.forward_.map.weight, expected.coef_, atol=2e-3)
    assert np.allclose(fitted.forward_.map.bias, expected.intercept_, atol=2e-3)
    assert np.allclose(fitted.backward(data.new), unit(data.new), atol=1e-6)


@pytest.mark.parametrize(("d", "n"), [(6, 6), (5, 8), (8, 5)])
def test_drift_adapters_scaling_is_least_squares_for_each_coordinate(made, d, n):
    data = made(d=d, n=n, rows=200)
    old, new = training(data)
    turned = DriftAdapter(kind="procrustes", scaling=False).fit(*data).backward_.map
    scaled = DriftAdapter(kind="procrustes", scaling=True).fit(*data).backward_.map
    y = new @ turned.weight.T.astype(np.float64)
    for j in range(min(d, n)):
        factor = np.linalg.lstsq(y[:, j : j + 1], old[:, j], rcond=None)[0][0]
        assert np.allclose(scaled.weight[j], factor * turned.weight[j], atol=1e-4)


def test_drift_adapter_ends_in_the_old_models_space(made):
    data = made(d=5, n=8)
    fitted = DriftAdapter(kind="procrustes").fit(*data)
    assert fitted.shared_dim_ == 5
    assert np.allclose(fitted.forward(data.old), unit(data.old), atol=1e-6)
