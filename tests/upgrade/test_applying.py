"""Applying an upgrade: its formula, and vectors of every shape and type."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.upgrade.conftest import KINDS, closed, unit

from crossfade.solvers.split import validation_rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("how_old", "how_new"), [*itertools.product(["l2", "none"], repeat=2)])
def test_the_maps_are_their_formula_on_normalized_vectors(data, kind, how_old, how_new):
    upgrade = closed(backward_map=kind, normalize_old=how_old, normalize_new=how_new, lam=0.5)
    upgrade.fit(*data)
    for x, how, directed in (
        (data.new, how_new, upgrade.backward_),
        (data.old, how_old, upgrade.forward_),
    ):
        tensors = {k: v.astype(np.float64) for k, v in directed.map.tensors().items()}
        x64 = x.astype(np.float64)
        if how == "l2":
            expected = unit(unit(x64) @ tensors["weight"].T + tensors.get("bias", 0.0))
        else:
            expected = x64 @ tensors["weight"].T + tensors.get("bias", 0.0)
        assert np.allclose(directed(x), expected, atol=1e-4)


def test_lengths_matter_only_where_they_are_not_normalized_away(data):
    for how, factor in (("l2", 1), ("none", 3)):
        upgrade = closed(normalize_new=how).fit(*data)
        expected = factor * upgrade.backward(data.new)
        assert np.allclose(upgrade.backward(3 * data.new), expected, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_rows_whose_squares_leave_float32_are_mapped_all_the_same(data, kind, factor):
    upgrade = closed(backward_map=kind, lam=0.5).fit(*data)
    x = (data.new[:5] * factor).astype(np.float32)
    expected = upgrade.backward(data.new[:5])
    assert np.allclose(upgrade.backward(x), expected, atol=1e-5)
    assert np.allclose(upgrade.backward(x[0]), expected[0], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_vector_is_mapped_as_its_row_is(data, kind):
    upgrade = closed(backward_map=kind, lam=0.5).fit(*data)
    for apply, x in (
        (upgrade.backward, data.new),
        (upgrade.forward, data.old),
        (upgrade.in_shared_space, data.old),
    ):
        rows = apply(x)
        for i in range(10):
            one = apply(x[i])
            assert one.shape == (8,)
            assert one.dtype == np.float32
            assert np.allclose(one, rows[i], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_mapped_as_float32(fitted, data, dtype):
    new, old = data.new.astype(dtype), data.old.astype(dtype)
    assert np.array_equal(fitted.backward(new), fitted.backward(new.astype(np.float32)))
    assert np.array_equal(fitted.forward(old), fitted.forward(old.astype(np.float32)))
    assert np.allclose(fitted.backward(new[0]), fitted.backward(new[0].astype(np.float32)))


def test_lists_and_views_are_vectors_too(fitted, data):
    expected = fitted.backward(data.new)
    assert np.allclose(fitted.backward(data.new.tolist()), expected, atol=1e-6)
    strided = np.repeat(data.new, 2, axis=1)[:, ::2]
    assert np.array_equal(fitted.backward(strided), expected)
    assert np.array_equal(fitted.backward(np.asfortranarray(data.new)), expected)
    assert fitted.backward(data.new[:0]).shape == (0, 8)


def test_applying_leaves_the_vectors_as_they_were(fitted, data):
    new, old = data.new.copy(), data.old.copy()
    fitted.backward(new)
    fitted.backward(new[0])
    fitted.forward(old)
    fitted.in_shared_space(old)
    assert np.array_equal(new, data.new)
    assert np.array_equal(old, data.old)


@pytest.mark.parametrize("how", ["l2", "none"])
@pytest.mark.parametrize(
    ("d", "n", "rotate"), [(5, 8, False), (7, 7, False), (9, 6, False), (9, 6, True)]
)
def test_old_is_placed_normalized_then_rotated_then_cut_or_padded(made, how, d, n, rotate):
    old, new, labels = made(d=d, n=n)
    upgrade = closed(normalize_old=how, rotate_old=rotate).fit(old, new, labels)
    expected = old.astype(np.float64)
    if how == "l2":
        expected = unit(expected)
    if rotate:
        training = ~validation_rows(len(old), labels, None, seed=0)
        axes = np.linalg.svd(expected[training])[2]
        # An axis may point either way.
        axes *= np.sign(np.sum(axes * upgrade.axes_, axis=1, keepdims=True))
        expected = expected @ axes.T
    padded = np.zeros((len(old), n))
    padded[:, : min(d, n)] = expected[:, :n]
    assert np.allclose(upgrade.in_shared_space(old), padded, atol=1e-3)
    assert np.allclose(upgrade.as_stored(old), expected, atol=1e-3)
    assert np.array_equal(upgrade.as_stored(old[0]), upgrade.as_stored(old[:1])[0])
