"""The numpy maps compute what the torch modules they are frozen from compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossfade.maps import KINDS, Affine, Mlp, NearOrthogonal, Orthogonal
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.closed_form import procrustes
from crossfade.solvers.trainable import (
    TrainableAffine,
    TrainableMlp,
    TrainableRotation,
    TrainableTurn,
    input_scale,
)

# Every entry of W is rounded to float32, an error of at most half an ulp of a number below one;
# WWᵀ then differs by about that in each of its n rows.
ROUND_OFF = float(np.finfo(np.float32).eps)


@pytest.fixture
def x():
    return np.random.default_rng(5).normal(size=(30, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_a_rotation_is_frozen_as_it_is(x):
    module = TrainableRotation(torch.randn(5, 5))
    frozen = module.frozen()
    assert isinstance(frozen, Orthogonal)
    assert np.linalg.det(frozen.weight) == pytest.approx(1, abs=1e-5)
    expected = module.apply_with(module.matrix(), torch.from_numpy(x)).detach().numpy()
    assert np.allclose(frozen(x), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [5, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_turn_is_frozen_as_it_is_and_keeps_its_determinant(x, rows, sign):
    start = torch.eye(5)
    start[0, 0] = sign
    module = TrainableTurn(start, rows)
    with torch.no_grad():
        module.upper.copy_(torch.randn(5, 5))
    frozen = module.frozen()
    assert isinstance(frozen, Orthogonal)
    assert np.linalg.det(frozen.weight) == pytest.approx(sign, abs=1e-5)
    found = module(torch.from_numpy(x) @ start.T).detach().numpy()
    assert np.allclose(frozen(x)[:, :rows], found, atol=1e-5)


def turn(start, upper):
    module = TrainableTurn(torch.from_numpy(start), len(start))
    with torch.no_grad():
        module.upper.copy_(torch.from_numpy(upper))
    return module


def rotation(start, upper):
    return TrainableRotation(torch.from_numpy(upper.astype(np.float32)))


@given(st.integers(2, 40), st.integers(0, 100), st.sampled_from([turn, rotation]))
def test_frozen_it_is_orthogonal_to_float32_round_off(n, seed, made):
    rng = np.random.default_rng(seed)
    start = procrustes(rng.normal(size=(n, n))).astype(np.float32)
    frozen = made(start, rng.normal(size=(n, n))).frozen()
    assert deviation(frozen.weight) <= ROUND_OFF * np.sqrt(n)


def test_a_reflection_stays_one_while_it_is_trained():
    start = torch.diag(torch.tensor([-1.0, 1.0, 1.0]))
    module = TrainableTurn(start, 3)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    new, old = torch.randn(20, 3), torch.randn(20, 3)
    for _ in range(20):
        optimizer.zero_grad()
        (module(new @ start.T) - old).square().mean().backward()
        optimizer.step()
    assert float(module.upper.detach().norm()) > 0.1
    assert np.linalg.det(module.frozen().weight) == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize(("near", "kind"), [(True, NearOrthogonal), (False, Affine)])
def test_an_affine_map_is_frozen_as_it_is(x, near, kind):
    module = TrainableAffine(torch.randn(5, 5), torch.randn(5), near_orthogonal=near)
    frozen = module.frozen()
    assert type(frozen) is kind
    assert np.allclose(frozen(x), module(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("hidden", [(4,), (7, 3)])
@pytest.mark.parametrize("with_skip", [True, False])
def test_an_mlp_is_frozen_as_it_is(x, hidden, with_skip):
    skip = (torch.randn(6, 5), torch.randn(6)) if with_skip else None
    module = TrainableMlp(5, 6, hidden, skip, scale=3.0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    frozen = module.frozen()
    assert isinstance(frozen, Mlp)
    assert frozen.hidden == hidden
    assert (frozen.in_dim, frozen.out_dim) == (5, 6)
    assert np.allclose(
        frozen(x), module(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-3
    )


def test_an_mlp_with_a_skip_starts_as_the_skip(x):
    weight, bias = torch.randn(6, 5), torch.randn(6)
    frozen = TrainableMlp(5, 6, (9,), (weight, bias), scale=2.0).frozen()
    assert np.allclose(frozen(x), x @ weight.numpy().T + bias.numpy(), atol=1e-5)


def test_freezing_copies(x):
    module = TrainableAffine(torch.randn(5, 5), torch.randn(5), near_orthogonal=False)
    frozen = module.frozen()
    before = frozen(x).copy()
    with torch.no_grad():
        module.weight.zero_()
    assert np.array_equal(frozen(x), before)


def test_an_mlp_is_its_formula(x):
    rng = np.random.default_rng(3)

    def layer(rows, columns):
        return (
            rng.normal(size=(rows, columns)).astype(np.float32),
            rng.normal(size=rows).astype(np.float32),
        )

    first, last, skip = layer(4, 5), layer(2, 4), layer(2, 5)
    y = Mlp((first, last), skip)(x)
    for row, vector in enumerate(x):
        hidden = [max(0.0, float(w @ vector + b)) for w, b in zip(*first, strict=True)]
        out = last[0] @ np.array(hidden) + last[1] + skip[0] @ vector + skip[1]
        assert np.allclose(y[row], out, atol=1e-4)


def maps():
    rng = np.random.default_rng(4)
    weight, bias = (
        rng.normal(size=(5, 5)).astype(np.float32),
        rng.normal(size=5).astype(np.float32),
    )
    return [
        Orthogonal(weight),
        NearOrthogonal(weight, bias),
        Affine(weight, bias),
        Mlp(((weight, bias), (weight.T.copy(), bias)), None),
        Mlp(((weight, bias), (weight, bias), (weight.T.copy(), bias)), (weight, bias)),
    ]


@pytest.mark.parametrize("the_map", maps(), ids=lambda m: m.kind)
def test_a_map_comes_back_from_its_tensors(x, the_map):
    back = KINDS[the_map.kind].from_tensors(the_map.tensors())
    assert type(back) is type(the_map)
    assert np.array_equal(back(x), the_map(x))


@pytest.mark.parametrize("the_map", maps(), ids=lambda m: m.kind)
def test_a_map_writes_into_the_array_it_is_given(x, the_map):
    out = np.empty((len(x), 5), dtype=np.float32)
    assert the_map(x, out) is out
    assert np.array_equal(out, the_map(x))


def test_input_scale_brings_coordinates_to_unit_variance():
    x = np.random.default_rng(6).normal(size=(5000, 64)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert (x * input_scale(x)).var() == pytest.approx(1, rel=0.01)
