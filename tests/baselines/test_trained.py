"""What the trained baselines learn, and that it is what their papers ask for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crossfade import BadInput, Held, Pairs, Upgrade, evaluate
from crossfade.backfill import Items
from crossfade.baselines import FCT, SRIP, DriftAdapter, FastFill, SoftOrthogonality
from crossfade.baselines.fastfill import split
from crossfade.maps import Mlp
from crossfade.solvers.split import validation_rows

QUICK = {"batch_size": 50, "device": "cpu"}


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def training(data):
    held = validation_rows(len(data.old), data.labels, None, seed=0)
    return unit(data.old[~held]), unit(data.new[~held]), data.labels[~held]


def test_fct_minimizes_the_distance_to_new_and_leaves_new_alone(made):
    data = made(rows=300)
    fct = FCT(hidden=(64,), epochs=60, **QUICK).fit(*data)
    old, new, _ = training(data)
    reached = np.square(fct.forward_.map(old) - new).sum(axis=1).mean()
    # The last epoch's mean is of weights still moving.
    assert reached == pytest.approx(fct.history_[-1]["losses"]["L_F"], rel=0.1)
    assert reached < 0.2 * fct.history_[0]["losses"]["L_F"]
    assert np.allclose(fct.backward(data.new), unit(data.new), atol=1e-6)


def test_fcts_side_information_tells_what_old_does_not(made):
    rng = np.random.default_rng(0)
    new = rng.normal(size=(400, 6)).astype(np.float32)
    old, side = new[:, :3], new[:, 3:]
    options = {"hidden": (64,), "epochs": 60, **QUICK}
    plain = FCT(**options).fit(old, new)
    joined = FCT.join(old, side)
    helped = FCT(side_dim=3, **options).fit(joined, new)
    target = unit(new)
    gaps = [
        np.square(f - target).sum(axis=1).mean()
        for f in (plain.forward(old), helped.forward(joined))
    ]
    assert gaps[1] < 0.5 * gaps[0]
    assert np.allclose(helped.as_stored(joined), unit(old), atol=1e-6)
    assert np.allclose(helped.as_stored(joined[0]), unit(old)[0], atol=1e-6)


def test_side_information_stays_out_of_the_old_cases(made):
    data = made(rows=200)
    joined = FCT.join(data.old, data.new)
    fct = FCT(side_dim=data.new.shape[1], hidden=(8,), epochs=1, **QUICK)
    fct.fit(joined[:120], data.new[:120], data.labels[:120])
    plain = Upgrade(solver="closed_form").fit(*(x[:120] for x in data))
    tables = [
        evaluate(fit, Held.of(Pairs.from_arrays(old[120:], data.new[120:], data.labels[120:])))
        for fit, old in ((fct, joined), (plain, data.old))
    ]
    assert tables[0].means()["old/old"] == pytest.approx(tables[1].means()["old/old"], abs=1e-4)


def test_side_information_that_is_not_there_is_refused(made):
    data = made()
    with pytest.raises(BadInput, match=r"side_dim=6 of rows of 6 → make rows with FCT\.join"):
        FCT(side_dim=6).fit(*data)
    with pytest.raises(BadInput, match="old and side have shapes"):
        FCT.join(data.old, data.new[:5])


@pytest.fixture(scope="module")
def uneven():
    """Half of the items are noisy in the new model, and their old vectors tell which."""
    rng = np.random.default_rng(0)
    labels = np.arange(800) % 4
    noisy = rng.random(800) < 0.5
    old = np.eye(4)[labels] + 0.1 * rng.normal(size=(800, 4))
    new = np.hstack([np.eye(4)[labels], np.zeros((800, 2))])
    new += np.where(noisy, 0.6, 0.05)[:, None] * rng.normal(size=(800, 6))
    old = np.column_stack([old, np.where(noisy, 1.0, -1.0)])
    return old.astype(np.float32), new.astype(np.float32), labels, noisy


def test_fastfills_variance_is_that_of_its_error(uneven):
    old, new, labels, noisy = uneven
    fill = FastFill(hidden=(64,), epochs=80, **QUICK).fit(old[:600], new[:600], labels[:600])
    held, target = old[600:], unit(new[600:])
    error = np.square(fill.forward_.map(unit(held)) - target).mean(axis=1)
    variance = np.exp(fill.uncertainty(held))
    for group in (noisy[600:], ~noisy[600:]):
        assert variance[group].mean() == pytest.approx(error[group].mean(), rel=0.5)
    items = Items(np.arange(200), held, fill.forward(held))
    first = np.argsort(-fill.order(items))[:60]
    assert noisy[600:][first].mean() > 0.95


def test_fastfills_classifier_pulls_towards_its_classes(uneven):
    old, new, labels, _ = uneven
    weight, bias = np.zeros((5, 6), np.float32), np.zeros(5, np.float32)
    # The classifier has the classes in another order, and one the pairs do not have.
    weight[[1, 2, 3, 4], [0, 1, 2, 3]] = 1.0
    bias[0] = -9.0
    options = {"hidden": (16,), "epochs": 30, "classifier": (weight, bias), **QUICK}
    right, wrong = (
        FastFill(disc_weight=5.0, **options).fit(old, new, y) for y in (labels + 1, 4 - labels)
    )
    scores = [np.argmax(f.forward(old) @ weight.T + bias, axis=1) for f in (right, wrong)]
    assert (scores[0] == labels + 1).mean() > 0.95
    assert (scores[1] == 4 - labels).mean() > 0.8


@pytest.mark.parametrize(
    ("classifier", "labels", "message"),
    [
        (None, False, "FastFill learns from labels"),
        ((np.ones((4, 3)), np.ones(4)), True, "give the weight .classes, 6."),
        ((np.ones((3, 6)), np.ones(3)), True, "do not name rows of a classifier of 3"),
    ],
)
def test_what_fastfill_cannot_do_is_refused(uneven, classifier, labels, message):
    old, new, y, _ = uneven
    with pytest.raises(BadInput, match=message):
        FastFill(classifier=classifier, **QUICK).fit(old, new, y if labels else None)


def test_a_saved_fastfill_keeps_its_uncertainty(uneven, tmp_path):
    old, new, labels, _ = uneven
    fill = FastFill(hidden=(8,), epochs=1, **QUICK).fit(old, new, labels)
    fill.save(tmp_path / "fill")
    assert np.array_equal(FastFill.load(tmp_path / "fill").uncertainty(old), fill.uncertainty(old))


def test_two_maps_of_one_share_its_hidden_layers():
    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(size=(5, 3)), rng.normal(size=5)),
        (rng.normal(size=(4, 5)), rng.normal(size=4)),
    ]
    whole = Mlp(tuple((w.astype("f4"), b.astype("f4")) for w, b in layers), None)
    x = rng.normal(size=(7, 3)).astype("f4")
    first, rest = split(whole, 3)
    assert np.allclose(np.hstack([first(x), rest(x)]), whole(x), atol=1e-6)


def test_a_low_rank_adapter_has_that_rank(made):
    weight = (
        DriftAdapter(kind="low-rank", rank=2, epochs=3, **QUICK).fit(*made()).backward_.map.weight
    )
    assert np.linalg.matrix_rank(weight, tol=1e-4) == 2


def test_the_residual_mlp_starts_at_the_cut(made):
    data = made(d=5, n=8)
    still = DriftAdapter(hidden=4, lr=1e-12, epochs=1, **QUICK).fit(*data).backward_.map
    new = unit(data.new)
    with torch.no_grad():
        inner = still(new) - new[:, :5]
    # What is left is the untrained inner layer: small beside the vectors, and not nothing.
    assert 0 < np.abs(inner).max() < 1


def test_drift_adapters_close_the_gap_to_old(made):
    data = made(rows=400)
    old = unit(data.old)
    for kind in ("low-rank", "mlp"):
        adapter = DriftAdapter(kind=kind, rank=5, epochs=60, **QUICK).fit(*data)
        gap = np.square(adapter.backward_.map(unit(data.new)) - old).sum(axis=1).mean()
        plain = np.square(unit(data.new)[:, :6] - old).sum(axis=1).mean()
        assert gap < 0.2 * plain


def test_so_and_srip_are_the_papers_recipe_with_their_regularizer(made):
    data = made()
    options = {"epochs": 2, "seed": 3, **QUICK}
    for kind, name in ((SoftOrthogonality, "so"), (SRIP, "srip")):
        ours = kind(weight=0.5, **options).fit(*data)
        same = Upgrade(
            solver="paper",
            backward_map="near-orthogonal",
            regularizer=name,
            regularizer_weight=0.5,
            forward_map="mlp",
            **options,
        ).fit(*data)
        assert np.array_equal(ours.backward_.map.weight, same.backward_.map.weight)


@pytest.mark.parametrize("kind", [SoftOrthogonality, SRIP])
def test_the_weight_decides_how_orthogonal_b_ends(kind, made):
    data = made(rows=200)
    options = {"forward_map": "affine", "epochs": 40, "lr": 0.01, **QUICK}
    reached = [kind(weight=w, **options).fit(*data).lambda_reached_ for w in (10.0, 1e-3)]
    assert reached[0] < 0.5 * reached[1]
