"""How orthogonal the backward map of an upgrade is, and what λ and the regularizers do to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
from tests.upgrade.conftest import DIMS, closed, quick

from crossfade import Upgrade
from crossfade.maps.near_orthogonal import deviation
from crossfade.retrieval import SameClass, relevant_ranks

# W is rounded to float32 entry by entry: an error below eps/2 of its size, n entries to a row, so
# ‖WWᵀ−I‖_F stays below eps·√n.
EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("solver", ["closed_form", "fast", "paper"])
@pytest.mark.parametrize(("d", "n"), DIMS)
def test_an_orthogonal_b_is_orthogonal_to_float32_round_off(made, tmp_path, solver, d, n):
    upgrade = quick(solver=solver).fit(*made(d=d, n=n))
    weight = Upgrade.load(upgrade.save(tmp_path / "upgrade")).backward_.map.weight
    assert weight.dtype == np.float32
    assert deviation(weight) < EPS * math.sqrt(n)


def test_a_wide_orthogonal_b_is_orthogonal_to_float32_round_off():
    rng = np.random.default_rng(0)
    new = rng.normal(size=(300, 256))
    upgrade = closed().fit(new[:, :64] + 0.1 * rng.normal(size=(300, 64)), new)
    assert deviation(upgrade.backward_.map.weight) < EPS * math.sqrt(256)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["l2", "none"])
def test_searching_b_of_new_in_b_of_new_is_searching_new_in_new(seed, how):
    rng = np.random.default_rng(seed)
    old, new = rng.normal(size=(60, 12)), rng.normal(size=(60, 16))
    labels = np.arange(60) % 5
    # Not pairs at all, so that nothing but B's own geometry can hold it.
    upgrade = closed(normalize_new=how).fit(old, new, labels, force=True)
    b, relevance = upgrade.backward(new), SameClass.among(labels)
    mapped, plain = next(relevant_ranks(b, b, relevance)), next(relevant_ranks(new, new, relevance))
    assert mapped.ranks.tolist() == plain.ranks.tolist()
    assert upgrade.validation_["B(new)/B(new)"] == upgrade.validation_["new/new"]


def stretched():
    """Old is a stretched and shifted new: a B that is free to goes far from orthogonal."""
    rng = np.random.default_rng(2)
    labels = np.arange(240) % 12
    new = rng.normal(size=(12, 6))[labels] + 0.5 * rng.normal(size=(240, 6))
    rotation = scipy.linalg.qr(rng.normal(size=(6, 6)))[0]
    return new @ (rotation * [3, 2.5, 2, 1, 0.4, 0.2]).T + 3, new, labels


@pytest.mark.parametrize("solver", ["closed_form", "fast", "paper"])
def test_a_lambda_that_binds_is_reached_within_a_tenth(solver):
    lam = 3.0
    options = {
        "solver": solver,
        "backward_map": "near-orthogonal",
        "forward_map": "affine",
        "alpha": 50.0,
        "w2": 2.0,
        "lr": 0.02,
        "epochs": 80,
        "batch_size": 64,
        "regularizer_weight": 8.0,
        "normalize_old": "none",
        "normalize_new": "none",
    }

    def reached(upgrade):
        # Where fast stops is a matter of validation; where its training goes, of λ.
        path = [e["deviation"] for e in upgrade.history_ if e["block"] == "backward"]
        return path[-1] if path else upgrade.lambda_reached_

    free = Upgrade(**options, lam=math.inf).fit(*stretched())
    assert reached(free) > 1.5 * lam
    bound = Upgrade(**options, lam=lam).fit(*stretched())
    assert reached(bound) == pytest.approx(lam, rel=0.1)
    assert bound.config_.lambda_asked == lam


def test_a_b_still_on_its_way_to_lambda_is_not_validated():
    options = {"forward_map": "affine", "w2": 2.0, "lr": 0.005, "epochs": 40, "batch_size": 64}
    lengths = {"normalize_old": "none", "normalize_new": "none"}
    upgrade = Upgrade(
        backward_map="near-orthogonal", lam=3.0, regularizer_weight=8.0, **options, **lengths
    ).fit(*stretched())
    path = [e for e in upgrade.history_ if e["block"] == "backward"]
    assert path[9]["deviation"] < 0.9 * 3.0
    assert [e["epoch"] for e in path if "validation" in e] == [20, 30, 40]
    # A rotation has nowhere to settle.
    path = [e for e in Upgrade(**options).fit(*stretched()).history_ if e["block"] == "backward"]
    assert [e["epoch"] for e in path if "validation" in e] == [10, 20, 30, 40]


@pytest.mark.parametrize("name", ["smooth", "heaviside", "so", "srip"])
def test_every_regularizer_holds_b_nearer_to_orthogonal(name):
    options = {
        "solver": "paper",
        "backward_map": "near-orthogonal",
        "forward_map": "affine",
        "epochs": 30,
        "lr": 0.02,
        "batch_size": 64,
        "normalize_old": "none",
        "normalize_new": "none",
    }
    free = Upgrade(**options, lam=math.inf).fit(*stretched())
    held = Upgrade(**options, lam=0.5, regularizer=name, regularizer_weight=100.0).fit(*stretched())
    assert held.lambda_reached_ < 0.5 * free.lambda_reached_
