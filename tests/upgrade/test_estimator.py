"""An upgrade as an object: its parameters, its copies, and that it survives being saved."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone
from tests.upgrade.conftest import KINDS, closed, quick

from crossfade import BadInput, Upgrade


@pytest.mark.parametrize("backward", KINDS)
@pytest.mark.parametrize("solver", ["closed_form", "fast"])
def test_a_saved_upgrade_comes_back_bit_for_bit(tmp_path, made, backward, solver):
    old, new, labels = made(d=9, n=6)
    upgrade = quick(
        backward_map=backward, solver=solver, rotate_old=True, lam=0.5, old_model="été", seed=5
    )
    upgrade.fit(old, new, labels)
    assert upgrade.save(tmp_path / "upgrade") == tmp_path / "upgrade"
    back = Upgrade.load(tmp_path / "upgrade")
    assert np.array_equal(back.backward(new), upgrade.backward(new))
    assert np.array_equal(back.forward(old), upgrade.forward(old))
    assert np.array_equal(back.in_shared_space(old), upgrade.in_shared_space(old))
    assert back.hash_ == upgrade.hash_
    assert back.get_params() == upgrade.get_params()
    assert back.history_ == upgrade.history_
    assert back.validation_ == upgrade.validation_
    assert (back.old_dim_, back.new_dim_, back.shared_dim_) == (9, 6, 6)
    back.save(tmp_path / "again")
    for name in ("config.json", "upgrade.safetensors", "README.md"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / "upgrade" / name
        ).read_bytes()


@pytest.mark.parametrize("solver", ["closed_form", "fast"])
def test_no_regularization_survives_saving(tmp_path, data, solver):
    upgrade = quick(backward_map="near-orthogonal", lam=math.inf, solver=solver).fit(*data)
    back = Upgrade.load(upgrade.save(tmp_path / "upgrade"))
    assert back.lam == math.inf
    assert back.config_.lambda_asked == math.inf
    assert back.hash_ == upgrade.hash_


def test_settings_may_be_numpys_numbers(tmp_path, data):
    upgrade = closed(seed=np.int64(3), lam=np.float32(2), validation=np.float64(0.25)).fit(*data)
    back = Upgrade.load(upgrade.save(tmp_path / "upgrade"))
    assert (back.seed, back.lam, back.validation) == (3, 2, 0.25)
    assert back.hash_ == closed(seed=3, lam=2.0, validation=0.25).fit(*data).hash_


def test_scikit_learn_can_clone_it(data):
    upgrade = closed(backward_map="affine", hidden=(3, 4), seed=7).fit(*data)
    twin = clone(upgrade)
    assert twin is not upgrade
    assert twin.get_params() == upgrade.get_params()
    assert not hasattr(twin, "backward_")
    assert twin.fit(*data).hash_ == upgrade.hash_


def test_the_constructor_only_stores():
    hidden = [3]
    upgrade = Upgrade(backward_map="no such map", hidden=hidden)
    assert upgrade.get_params()["backward_map"] == "no such map"
    assert upgrade.hidden is hidden
    with pytest.raises(BadInput, match="backward_map='no such map' is not known"):
        upgrade.fit(np.eye(5), np.eye(5))


def test_parameters_can_be_set(data):
    upgrade = closed()
    assert upgrade.set_params(backward_map="affine", seed=4) is upgrade
    assert upgrade.get_params()["seed"] == 4
    assert upgrade.fit(*data).backward_.map.kind == "affine"
    with pytest.raises(BadInput, match="there is no parameter 'depth'"):
        upgrade.set_params(depth=3)


def test_its_repr_shows_what_was_changed():
    assert repr(Upgrade()) == "Upgrade()"
    assert repr(Upgrade(lam=3.0, solver="paper")) == "Upgrade(lam=3.0, solver='paper')"
