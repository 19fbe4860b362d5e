"""Every term of the loss, against its formula in plain Python or numpy and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from crossfade.losses.alignment import alignment
from crossfade.losses.contrastive import contrastive
from crossfade.losses.orthogonality import (
    gram_deviation,
    lambda_heaviside,
    lambda_smooth,
    regularizer,
    soft_orthogonality,
    srip,
)


def tensor(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def contrastive_by_loop(queries, candidates, temperature, labels=None):
    dim = min(len(queries[0]), len(candidates[0]))

    def cosine(a, b):
        a, b = a[:dim], b[:dim]
        inner = sum(x * y for x, y in zip(a, b, strict=True))
        return inner / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    total = 0.0
    for i, q in enumerate(queries):
        weights = [math.exp(cosine(q, c) / temperature) for c in candidates]
        wanted = [
            j
            for j in range(len(candidates))
            if (i == j if labels is None else labels[i] == labels[j])
        ]
        total -= sum(math.log(weights[j] / sum(weights)) for j in wanted) / len(wanted)
    return total / len(queries)


@pytest.mark.parametrize("dims", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("temperature", [0.06, 0.5, 2.0])
@pytest.mark.parametrize("labelled", [True, False])
def test_contrastive_is_its_formula(dims, temperature, labelled):
    queries, candidates = tensor(9, dims[0]), tensor(9, dims[1], seed=1)
    labels = [0, 1, 2, 0, 1, 2, 0, 0, 3] if labelled else None
    expected = contrastive_by_loop(queries.tolist(), candidates.tolist(), temperature, labels)
    given_labels = torch.tensor(labels) if labelled else None
    found = contrastive(queries, candidates, temperature, given_labels)
    assert float(found) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("labelled", [True, False])
def test_both_ways_is_the_mean_of_the_two_ways(labelled):
    queries, candidates = tensor(6, 4), tensor(6, 3, seed=1)
    labels = torch.tensor([0, 1, 2, 0, 1, 2]) if labelled else None
    there = contrastive_by_loop(queries.tolist(), candidates.tolist(), 0.2, labels)
    back = contrastive_by_loop(candidates.tolist(), queries.tolist(), 0.2, labels)
    found = contrastive(queries, candidates, 0.2, labels, both_ways=True)
    assert float(found) == pytest.approx((there + back) / 2, rel=1e-9)


def test_contrastive_without_labels_is_that_of_a_class_for_each_item():
    queries, candidates = tensor(7, 4), tensor(7, 4, seed=1)
    assert torch.allclose(
        contrastive(queries, candidates, 0.1),
        contrastive(queries, candidates, 0.1, torch.arange(7)),
    )


@pytest.mark.parametrize("labelled", [True, False])
def test_gradients_of_contrastive_agree_with_finite_differences(labelled):
    queries = tensor(5, 3).requires_grad_()
    candidates = tensor(5, 4, seed=1).requires_grad_()
    labels = torch.tensor([0, 1, 0, 1, 1]) if labelled else None
    assert torch.autograd.gradcheck(
        lambda q, c: contrastive(q, c, 0.3, labels), (queries, candidates)
    )


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_alignment_is_the_mean_squared_distance_of_what_both_have(rows, a, b, seed):
    mapped, target = tensor(rows, a, seed=seed), tensor(rows, b, seed=seed + 1)
    dim = min(a, b)
    gaps = mapped.numpy()[:, :dim] - target.numpy()[:, :dim]
    expected = np.mean(np.linalg.norm(gaps, axis=1) ** 2)
    assert float(alignment(mapped, target)) == pytest.approx(expected)


def test_gradients_of_alignment_agree_with_finite_differences():
    mapped, target = tensor(4, 5).requires_grad_(), tensor(4, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(alignment, (mapped, target))


def distance_of(weight):
    w = weight.numpy()
    return float(np.linalg.norm(w @ w.T - np.eye(len(w)), "fro"))


@given(st.integers(1, 6), st.integers(0, 99))
def test_soft_orthogonality_is_the_frobenius_norm(n, seed):
    weight = tensor(n, n, seed=seed)
    assert float(soft_orthogonality(weight)) == pytest.approx(distance_of(weight))
    assert float(gram_deviation(weight)) == pytest.approx(distance_of(weight))


@given(st.integers(1, 6), st.integers(0, 99), st.floats(0, 20), st.floats(0, 30))
def test_lambda_smooth_is_its_formula(n, seed, lam, alpha):
    weight = tensor(n, n, seed=seed)
    distance = distance_of(weight)
    exponent = -alpha * (distance - lam)
    expected = distance / (1 + math.exp(exponent)) if exponent < 700 else 0.0
    found = float(lambda_smooth(weight, lam, alpha))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(st.integers(1, 6), st.integers(0, 99), st.floats(0, 20))
def test_lambda_heaviside_is_on_above_lambda_and_off_below(n, seed, lam):
    weight = tensor(n, n, seed=seed)
    distance = distance_of(weight)
    expected = distance if distance > lam else 0.0
    if abs(distance - lam) > 1e-9:
        assert float(lambda_heaviside(weight, lam)) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [-0.5, 0.5])
def test_a_steep_smooth_switch_is_the_heaviside_one(shift):
    weight = tensor(4, 4)
    lam = distance_of(weight) + shift
    step = float(lambda_heaviside(weight, lam))
    gaps = [abs(float(lambda_smooth(weight, lam, alpha)) - step) for alpha in (1, 10, 100)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-12


def test_lambda_zero_is_soft_orthogonality():
    weight = tensor(4, 4)
    assert float(lambda_heaviside(weight, 0.0)) == float(soft_orthogonality(weight))
    assert float(lambda_smooth(weight, 0.0, 50.0)) == pytest.approx(distance_of(weight))


@given(st.integers(1, 8), st.integers(0, 99))
def test_srip_is_the_spectral_norm(n, seed):
    w = np.random.default_rng(seed).normal(size=(n, n))
    true = np.linalg.norm(w.T @ w - np.eye(n), 2)
    start = tensor(n, seed=seed + 1)
    found = float(srip(torch.from_numpy(w), iterations=1000, start=start))
    assert found == pytest.approx(true, rel=1e-3)
    assert float(srip(torch.from_numpy(w), iterations=1, start=start)) <= true * (1 + 1e-9)


def test_every_regularizer_of_an_orthogonal_weight_is_nothing_and_has_no_gradient():
    weight = torch.from_numpy(ortho_group(5, seed=0).rvs()).requires_grad_()
    for name in ("smooth", "heaviside", "so", "srip"):
        weight.grad = None
        value = regularizer(name, 0.0, 10.0)(weight)
        value.backward()
        assert float(value.detach()) < 1e-10
        assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize(
    "loss",
    [
        soft_orthogonality,
        lambda w: lambda_smooth(w, 3.0, 2.0),
        lambda w: lambda_heaviside(w, 0.5),
        # At the eigenvector itself the iteration stands still, as the derivative assumes it does.
        lambda w: srip(w, iterations=0, start=top_eigenvector(w)),
    ],
    ids=["so", "smooth", "heaviside", "srip"],
)
def test_gradients_of_regularizers_agree_with_finite_differences(loss):
    assert torch.autograd.gradcheck(loss, (tensor(4, 4).requires_grad_(),))


def top_eigenvector(weight):
    w = weight.detach().numpy()
    values, vectors = np.linalg.eigh(w.T @ w - np.eye(len(w)))
    return torch.from_numpy(vectors[:, np.argmax(np.abs(values))].copy())


def test_the_gradient_of_srip_by_iteration_is_that_of_the_spectral_norm():
    weight = tensor(4, 4).requires_grad_()
    srip(weight, iterations=500, start=torch.ones(4, dtype=torch.float64)).backward()
    found, w = weight.grad.numpy(), weight.detach().numpy()
    step = 1e-6
    for i, j in np.ndindex(4, 4):
        norms = []
        for sign in (1, -1):
            moved = w.copy()
            moved[i, j] += sign * step
            norms.append(np.linalg.norm(moved.T @ moved - np.eye(4), 2))
        assert found[i, j] == pytest.approx((norms[0] - norms[1]) / (2 * step), abs=1e-5)


def test_regularizers_by_name():
    weight = tensor(4, 4)
    assert regularizer("smooth", 2.0, 3.0)(weight) == lambda_smooth(weight, 2.0, 3.0)
    assert regularizer("heaviside", 2.0, 3.0)(weight) == lambda_heaviside(weight, 2.0)
    assert regularizer("so", 2.0, 3.0)(weight) == soft_orthogonality(weight)
    assert regularizer("smooth", math.inf, 3.0) is None
    assert regularizer("heaviside", math.inf, 3.0) is None
