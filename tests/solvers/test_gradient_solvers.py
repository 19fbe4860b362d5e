"""What sets `fast` and `paper` apart: where they start, how they step, what they may keep."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from crossfade import BadInput, Upgrade
from crossfade.solvers.device import pick_device, seeded


def paper(data, **options):
    settings = {"solver": "paper", "forward_map": "affine", "epochs": 1, "batch_size": 1000}
    return Upgrade(**settings | options).fit(*data)


def weights(upgrade):
    return {
        f"{name}.{key}": value.astype(np.float64)
        for name, directed in (("backward", upgrade.backward_), ("forward", upgrade.forward_))
        for key, value in directed.map.tensors().items()
    }


def test_paper_starts_at_random_whatever_the_data_is(made):
    still = {"lr": 1e-12, "backward_map": "affine"}
    first, same = (weights(paper(made(seed=seed), **still)) for seed in (0, 1))
    other = weights(paper(made(seed=0), seed=1, **still))
    for name, value in first.items():
        assert np.allclose(value, same[name], atol=1e-6)
        assert not np.allclose(value, other[name], atol=1e-2)


def test_paper_takes_adams_first_step_at_the_papers_rate(made):
    # Adam's first step is the learning rate times the gradient's sign, whatever its size.
    still = weights(paper(made(), backward_map="affine", lr=1e-12))
    stepped = weights(paper(made(), backward_map="affine"))
    for name, value in still.items():
        assert np.allclose(np.abs(stepped[name] - value), 0.001, rtol=0.01), name


def test_paper_takes_the_last_state_as_it_is(made):
    upgrade = paper(made(), backward_map="near-orthogonal", epochs=4, batch_size=32, lam=1.0)
    assert [entry["kept"] for entry in upgrade.history_] == [False, False, False, True]
    assert not upgrade.notes_


def test_an_orthogonal_b_of_paper_is_a_rotation(made):
    weight = paper(made(), epochs=3).backward_.map.weight
    assert np.linalg.det(weight) == pytest.approx(1, abs=1e-5)


def test_fast_keeps_a_reflection_where_the_closed_form_is_one():
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 8
    signal = rng.normal(size=(8, 3))[labels] + 0.3 * rng.normal(size=(240, 3))
    # Each model adds noise of its own, which the least squares of the closed form follow too.
    new = np.hstack([signal, 3 * rng.normal(size=(240, 3))])
    turn = scipy.linalg.qr(rng.normal(size=(6, 6)))[0]
    old = np.hstack([signal, 1.5 * rng.normal(size=(240, 3))]) @ turn.T
    mirror = np.diag([-1, 1, 1, 1, 1, 1])
    options = {"normalize_old": "none", "normalize_new": "none"}
    determinants = set()
    for seen in (old, old @ mirror):
        closed = Upgrade(solver="closed_form", **options).fit(seen, new, labels)
        fast = Upgrade(
            epochs=15,
            lr=0.02,
            hidden=(4,),
            select_cases=("B(new)/old",),
            select_metrics=("mAP",),
            **options,
        ).fit(seen, new, labels)
        start, end = closed.backward_.map.weight, fast.backward_.map.weight
        assert np.abs(end - start).max() > 0.01, "B was not refined, so nothing was shown"
        assert np.linalg.det(end) == pytest.approx(np.linalg.det(start), abs=1e-5)
        determinants.add(round(float(np.linalg.det(end))))
    assert determinants == {1, -1}


def test_every_state_kept_by_fast_is_better_than_the_one_before(made):
    upgrade = Upgrade(epochs=10, lr=5e-3, hidden=(8,)).fit(*made(noise=0.8, rows=200))
    kept = [entry for entry in upgrade.history_ if entry["kept"]]
    means = [entry["validation_mean"] for entry in kept]
    assert means == sorted(set(means))
    start = kept[0]["validation"]["B(new)/old"]
    for entry in kept:
        for metric, value in entry["validation"]["B(new)/old"].items():
            assert value >= start[metric]
    last = kept[-1]["validation"]
    assert all(last[case] == upgrade.validation_[case] for case in last)


def test_seeded_is_repeatable_inside_and_leaves_no_trace_outside():
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(4)
    with seeded(3):
        assert torch.equal(torch.rand(4), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_devices_by_name():
    assert pick_device("cpu").type == "cpu"
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert pick_device("auto").type == expected
    with pytest.raises(BadInput, match=r"device='abacus' is not known → use auto, cpu, cuda or"):
        pick_device("abacus")


def test_a_cuda_device_that_is_not_there_is_refused(made):
    if torch.cuda.is_available():
        assert pick_device("cuda").type == "cuda"
    else:
        with pytest.raises(BadInput, match="torch sees no CUDA device → use device cpu"):
            Upgrade(device="cuda").fit(*made())
