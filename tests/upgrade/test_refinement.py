"""What the gradient solvers make of the closed form, and what they tell of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.linalg
from tests.upgrade.conftest import KINDS, closed, quick

from crossfade import Upgrade


def selected(upgrade, scores):
    return np.mean([scores[c][m] for c in upgrade.select_cases for m in upgrade.select_metrics])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backward", KINDS)
@pytest.mark.parametrize("noise", [0.8, 5.0])
def test_fast_never_ends_below_the_closed_form(made, seed, backward, noise):
    upgrade = quick(backward_map=backward, lam=0.5, epochs=3, seed=seed)
    upgrade.fit(*made(noise=noise, seed=seed))
    kept, start = upgrade.validation_, upgrade.closed_form_
    for metric in upgrade.select_metrics:
        assert kept["B(new)/old"][metric] >= start["B(new)/old"][metric]
    assert selected(upgrade, kept) >= selected(upgrade, start)
    reference = closed(seed=seed).fit(*made(noise=noise, seed=seed))
    assert start == reference.validation_


def test_fast_improves_on_the_closed_form_where_there_is_something_to_gain(made):
    upgrade = quick(epochs=30, hidden=(16,), batch_size=64, lr=5e-3).fit(
        *made(rows=300, classes=10, noise=0.8)
    )
    start = selected(upgrade, upgrade.closed_form_)
    assert selected(upgrade, upgrade.validation_) > start + 1
    assert not upgrade.notes_


def test_the_caller_chooses_what_best_means(made):
    upgrade = quick(
        epochs=5, lr=5e-3, select_cases=("F(old)/F(old)",), select_metrics=("cmc@3",)
    ).fit(*made(noise=0.8))
    measured = [e for e in upgrade.history_ if "validation" in e]
    allowed = [
        e["validation"]["F(old)/F(old)"]["cmc@3"]
        for e in measured
        if e["validation"]["B(new)/old"]["cmc@3"] >= upgrade.closed_form_["B(new)/old"]["cmc@3"]
    ]
    assert upgrade.validation_["F(old)/F(old)"]["cmc@3"] == max(allowed)


def test_where_refinement_does_not_pay_it_says_so_and_keeps_the_closed_form():
    rng = np.random.default_rng(0)
    labels = np.arange(100) % 5
    new = 10 * np.eye(5, 6)[labels] + 0.1 * rng.normal(size=(100, 6))
    old = new @ scipy.linalg.qr(rng.normal(size=(6, 6)))[0]
    upgrade, reference = quick(epochs=3).fit(old, new, labels), closed().fit(old, new, labels)
    # Every case is perfect already: there is nothing to gain.
    assert selected(upgrade, upgrade.closed_form_) == 100
    assert np.array_equal(upgrade.backward(new), reference.backward(new))
    assert np.array_equal(upgrade.forward(old), reference.forward(old))
    assert len(upgrade.notes_) == 2
    assert all("did not pay" in note and "closed form" in note for note in upgrade.notes_)


def test_the_history_of_fast_is_kept_and_reported(tmp_path, data):
    reported = []
    upgrade = quick(epochs=4).fit(*data, report=reported.append)
    assert upgrade.history_ == reported
    blocks = [entry["block"] for entry in upgrade.history_]
    assert blocks == ["closed_form"] + ["backward"] * 4 + ["forward"] * 4
    for entry in upgrade.history_[1:]:
        assert entry["losses"]
        assert all(math.isfinite(v) for v in entry["losses"].values())
        assert entry["deviation"] == pytest.approx(0, abs=1e-5)
    assert upgrade.history_[-1]["epoch"] == upgrade.history_[-1]["epochs"] == 4
    assert any("validation" in entry for entry in upgrade.history_[1:])
    json.dumps(upgrade.history_)


def test_the_history_of_paper_has_every_epoch_and_every_loss(data):
    upgrade = quick(solver="paper", backward_map="near-orthogonal", epochs=3, lam=0.1).fit(*data)
    assert [entry["epoch"] for entry in upgrade.history_] == [1, 2, 3]
    for entry in upgrade.history_:
        assert set(entry["losses"]) == {"L_F", "L_B", "L_C", "L_λ"}
    assert upgrade.history_[-1]["deviation"] == pytest.approx(upgrade.lambda_reached_, rel=1e-3)


def test_paper_lowers_the_loss_from_a_random_start(data):
    upgrade = quick(solver="paper", epochs=60, lr=0.01, batch_size=32).fit(*data)
    first, last = (sum(upgrade.history_[i]["losses"].values()) for i in (0, -1))
    assert last < 0.7 * first


def test_selection_is_by_the_cases_of_the_paper_by_default():
    assert Upgrade().select_cases == ("B(new)/F(old)", "F(old)/F(old)", "B(new)/old")
    assert Upgrade().select_metrics == ("cmc@1", "mAP")
