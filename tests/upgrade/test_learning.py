"""What `Upgrade.fit` learns: every kind of map, by every solver, from pairs of any dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from tests.upgrade.conftest import DIMS, KINDS, closed, quick, unit

from crossfade import BadInput, Pairs
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.split import validation_rows


def combinations():
    forwards = {"closed_form": ["auto", "affine"]}
    for solver in ("closed_form", "fast", "paper"):
        for forward in forwards.get(solver, ["auto", "mlp", "affine"]):
            yield from ((solver, backward, forward) for backward in KINDS)


@pytest.mark.parametrize(("solver", "backward", "forward"), [*combinations()])
@pytest.mark.parametrize("labelled", [True, False])
def test_every_solver_learns_every_kind_of_map(made, solver, backward, forward, labelled):
    old, new, labels = made(rows=60, classes=4)
    upgrade = quick(solver=solver, backward_map=backward, forward_map=forward, lam=1.0)
    assert upgrade.fit(old, new, labels if labelled else None) is upgrade
    assert upgrade.backward_.map.kind == backward
    possible = {"affine"} if forward == "affine" or solver == "closed_form" else {"mlp", "affine"}
    assert upgrade.forward_.map.kind in possible
    b, f = upgrade.backward(new), upgrade.forward(old)
    assert b.shape == f.shape == (60, 8)
    assert b.dtype == f.dtype == np.float32
    assert np.allclose(np.linalg.norm(b, axis=1), 1, atol=1e-5)
    assert np.allclose(np.linalg.norm(f, axis=1), 1, atol=1e-5)
    assert upgrade.lambda_reached_ == pytest.approx(deviation(upgrade.backward_.map.weight))


@pytest.mark.parametrize(("d", "n"), DIMS)
@pytest.mark.parametrize("solver", ["closed_form", "fast"])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_shared_space_has_the_new_dimension(made, d, n, solver, labelled):
    old, new, labels = made(d=d, n=n)
    for rotate in {False, d > n}:
        upgrade = quick(solver=solver, rotate_old=rotate)
        upgrade.fit(old, new, labels if labelled else None)
        assert upgrade.backward(new).shape == (120, n)
        assert upgrade.forward(old).shape == (120, n)
        assert upgrade.in_shared_space(old).shape == (120, n)
        assert (upgrade.old_dim_, upgrade.new_dim_, upgrade.shared_dim_) == (d, n, n)


@pytest.mark.parametrize(("d", "n"), [(1, 3), (3, 1), (1, 1)])
def test_one_dimension_is_enough(made, d, n):
    old, new, labels = made(d=d, n=n)
    # Of one dimension a sign is left, which cannot show that rows belong together.
    upgrade = closed().fit(old, new, labels, force=True)
    assert upgrade.backward(new).shape == upgrade.forward(old).shape == (120, n)


def test_rotating_old_is_for_an_old_model_of_more_dimensions(data):
    with pytest.raises(BadInput, match=r"rotate_old is for .* here 6 and 8 → leave rotate_old out"):
        closed(rotate_old=True).fit(*data)


def test_rotating_old_loses_less_to_the_cut(made):
    old, new, labels = made(d=12, n=4)
    old[:, 4:] *= 10

    def kept(upgrade):
        return np.sum(upgrade.in_shared_space(old) ** 2)

    options = {"normalize_old": "none"}
    cut = closed(**options).fit(old, new, labels)
    rotated = closed(rotate_old=True, **options).fit(old, new, labels)
    assert kept(rotated) > 10 * kept(cut)


def test_the_closed_form_b_is_scipys_procrustes_of_the_training_rows(made):
    old, new, labels = made(d=8, n=8)
    upgrade = closed(seed=3).fit(old, new, labels)
    training = ~validation_rows(len(old), labels, None, seed=3)
    reference = scipy.linalg.orthogonal_procrustes(
        unit(new[training].astype(np.float64)), unit(old[training].astype(np.float64))
    )[0].T
    assert np.allclose(upgrade.backward_.map.weight, reference, atol=1e-3)


def test_the_closed_form_streams_pairs_that_span_batches(tmp_path):
    rng = np.random.default_rng(0)
    rows, dim = 45_000, 100
    new = rng.normal(size=(rows, dim)).astype(np.float32)
    truth = scipy.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    old = new @ truth.T + 0.5 * rng.standard_normal((rows, dim), dtype=np.float32)
    np.savez(tmp_path / "pairs.npz", old=old, new=new)
    pairs = Pairs.open(tmp_path / "pairs.npz")
    assert len(list(pairs.batches())) > 1
    upgrade = closed(validation=0.002).fit(pairs)
    training = ~validation_rows(rows, None, 0.002, seed=0)
    cross = unit(old[training]).T.astype(np.float64) @ unit(new[training]).astype(np.float64)
    assert np.allclose(upgrade.backward_.map.weight, scipy.linalg.polar(cross)[0], atol=1e-4)


@pytest.mark.parametrize("solver", ["closed_form", "fast"])
def test_pairs_in_a_file_give_the_upgrade_that_arrays_give(tmp_path, data, solver):
    np.savez(tmp_path / "pairs.npz", **data._asdict())
    from_arrays = quick(solver=solver).fit(*data)
    from_file = quick(solver=solver).fit(Pairs.open(tmp_path / "pairs.npz"))
    assert from_file.hash_ == from_arrays.hash_


@pytest.mark.parametrize("solver", ["closed_form", "fast", "paper"])
def test_a_seed_gives_the_same_upgrade_every_time(data, solver):
    first = quick(solver=solver, seed=1, epochs=2).fit(*data)
    torch.rand(3)
    np.random.default_rng().normal()
    assert quick(solver=solver, seed=1, epochs=2).fit(*data).hash_ == first.hash_
    assert first.fit(*data).hash_ == first.hash_


def test_another_seed_gives_another_upgrade(data):
    first, second = (quick(seed=seed).fit(*data) for seed in (1, 2))
    assert not np.array_equal(first.forward(data.old), second.forward(data.old))
    assert first.hash_ != second.hash_


@pytest.mark.parametrize("solver", ["fast", "paper"])
def test_fitting_leaves_the_callers_random_numbers_alone(data, solver):
    before, legacy = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    quick(solver=solver).fit(*data)
    assert torch.equal(torch.get_rng_state(), before)
    assert str(np.random.get_state()) == legacy  # noqa: NPY002


@pytest.mark.parametrize("rows", [4, 6, 9])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_handful_of_pairs_can_be_learned_from(made, rows, labelled):
    old, new, _ = made(rows=rows)
    upgrade = closed().fit(old, new, np.arange(rows) % 2 if labelled else None, force=True)
    assert upgrade.config_.fit["validation_rows"] >= 2
    assert np.isfinite(upgrade.forward(old)).all()
    assert all(np.isfinite(list(case.values())).all() for case in upgrade.validation_.values())
