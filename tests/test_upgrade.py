"""`Upgrade`: what is learned, how it is applied, and what it refuses."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.base import clone

from crossfade import BadInput, Pairs, Upgrade
from crossfade.errors import BadRow
from crossfade.maps.near_orthogonal import deviation
from crossfade.retrieval import SameClass, relevant_ranks
from crossfade.solvers.settings import SELECT_CASES, SELECT_METRICS
from crossfade.solvers.split import validation_rows

# W is rounded to float32 entry by entry: an error below eps/2 of its size, n entries to a row, so
# ‖WWᵀ−I‖_F stays below eps·√n.
EPS = float(np.finfo(np.float32).eps)
DIMS = [(5, 8), (7, 7), (9, 6)]
KINDS = ["orthogonal", "near-orthogonal", "affine"]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def closed(**options):
    return Upgrade(solver="closed_form", **options)


def quick(**options):
    return Upgrade(**{"epochs": 1, "hidden": (4,), "device": "cpu"} | options)


@pytest.fixture(scope="module")
def data(made):
    return made()


@pytest.fixture(scope="module")
def fitted(data):
    return closed().fit(*data)


def combinations():
    forwards = {"closed_form": ["auto", "affine"]}
    for solver in ("closed_form", "fast", "paper"):
        for forward in forwards.get(solver, ["auto", "mlp", "affine"]):
            yield from ((solver, backward, forward) for backward in KINDS)


@pytest.mark.parametrize(("solver", "backward", "forward"), [*combinations()])
@pytest.mark.parametrize("labelled", [True, False])
def test_every_solver_learns_every_kind_of_map(made, solver, backward, forward, labelled):
    old, new, labels = made(rows=40, classes=4)
    upgrade = quick(solver=solver, backward_map=backward, forward_map=forward, lam=1.0)
    assert upgrade.fit(old, new, labels if labelled else None) is upgrade
    assert upgrade.backward_.map.kind == backward
    possible = {"affine"} if forward == "affine" or solver == "closed_form" else {"mlp", "affine"}
    assert upgrade.forward_.map.kind in possible
    b, f = upgrade.backward(new), upgrade.forward(old)
    assert b.shape == f.shape == (40, 8)
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
        assert upgrade.place(old).shape == (120, n)
        assert (upgrade.old_dim_, upgrade.new_dim_, upgrade.shared_dim_) == (d, n, n)


@pytest.mark.parametrize(("d", "n"), [(1, 3), (3, 1), (1, 1)])
def test_one_dimension_is_enough(made, d, n):
    old, new, labels = made(d=d, n=n)
    upgrade = closed().fit(old, new, labels)
    assert upgrade.backward(new).shape == upgrade.forward(old).shape == (120, n)


def test_rotating_old_is_for_an_old_model_of_more_dimensions(data):
    with pytest.raises(BadInput, match=r"rotate_old is for .* here 6 and 8 → leave rotate_old out"):
        closed(rotate_old=True).fit(*data)


def test_rotating_old_loses_less_to_the_cut(made):
    old, new, labels = made(d=12, n=4)
    old[:, 4:] *= 10

    def kept(upgrade):
        return np.sum(upgrade.place(old) ** 2)

    options = {"normalize_old": "none"}
    cut = closed(**options).fit(old, new, labels)
    rotated = closed(rotate_old=True, **options).fit(old, new, labels)
    assert kept(rotated) > 10 * kept(cut)


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
    upgrade = closed(normalize_new=how).fit(old, new, labels)
    b, relevance = upgrade.backward(new), SameClass.among(labels)
    mapped, plain = next(relevant_ranks(b, b, relevance)), next(relevant_ranks(new, new, relevance))
    assert mapped.ranks.tolist() == plain.ranks.tolist()
    assert upgrade.validation_["B(new)/B(new)"] == upgrade.validation_["new/new"]


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


@pytest.mark.parametrize("side", ["old", "new"])
def test_vectors_of_another_dimension_are_refused_with_both_numbers(fitted, side):
    apply = {"old": fitted.forward, "new": fitted.backward}[side]
    dim = {"old": 6, "new": 8}[side]
    direction = {"old": "forward", "new": "backward"}[side]
    with pytest.raises(BadInput) as caught:
        apply(np.ones((3, 7), np.float32))
    assert str(caught.value) == (
        f"vectors have dimension 7, but {direction} reads {side} vectors of dimension {dim} "
        "→ use the vectors of the model this upgrade was fitted on"
    )
    assert caught.value.exit_code == 2


def test_vectors_of_the_other_model_are_refused_with_the_way_to_go(fitted, data):
    with pytest.raises(BadInput, match=r"dimension 6, but .* dimension 8 → .*old.*: use forward"):
        fitted.backward(data.old)
    with pytest.raises(BadInput, match=r"dimension 8, but .* dimension 6 → .*new.*: use backward"):
        fitted.forward(data.new)
    with pytest.raises(BadInput, match="dimension 8"):
        fitted.place(data.new)
    with pytest.raises(BadInput, match=r"dimension 6.*use forward"):
        fitted.backward(data.old[0])


@pytest.mark.parametrize("how", ["l2", "none"])
def test_the_other_models_vectors_are_known_by_their_mean_where_dimensions_agree(made, how):
    old, new, labels = made(d=8, n=8, rows=200)
    upgrade = closed(normalize_old=how, normalize_new=how).fit(old, new, labels)
    with pytest.raises(BadInput, match=r"look like old vectors, but backward .* → use forward"):
        upgrade.backward(old)
    with pytest.raises(BadInput, match=r"look like new vectors, but forward .* → use backward"):
        upgrade.forward(new)
    assert len(upgrade.backward(new)) == len(upgrade.forward(old)) == 200
    # A few rows have no telling mean.
    assert len(upgrade.backward(old[:5])) == 5


@pytest.mark.parametrize(
    ("value", "problem"),
    [(np.nan, "has a NaN"), (np.inf, "has an infinite value"), (0.0, "is all zeros")],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["l2", "none"])
def test_a_bad_row_is_refused_by_its_number(data, value, problem, kind, how):
    upgrade = closed(backward_map=kind, lam=0.5, normalize_old=how, normalize_new=how).fit(*data)
    for apply, x, side in (
        (upgrade.backward, data.new, "new"),
        (upgrade.forward, data.old, "old"),
        (upgrade.place, data.old, "old"),
    ):
        bad = x.copy()
        bad[17] = value
        with pytest.raises(BadRow, match=f"row 17 of '{side}' {problem} → drop it or re-embed it"):
            apply(bad)
        with pytest.raises(BadRow, match=f"row 0 of '{side}' {problem}"):
            apply(bad[17])
        with pytest.raises(BadRow, match=f"row 0 of '{side}' {problem}"):
            apply(bad[17].astype(np.float64))


def test_a_bad_row_far_into_an_array_has_its_own_number(fitted):
    x = np.ones((70_000, 8), np.float32)
    x[66_666, 3] = np.nan
    with pytest.raises(BadRow, match="row 66666 of 'new' has a NaN"):
        fitted.backward(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_rows_whose_squares_leave_float32_are_mapped_all_the_same(data, kind, factor):
    upgrade = closed(backward_map=kind, lam=0.5).fit(*data)
    x = (data.new[:5] * factor).astype(np.float32)
    expected = upgrade.backward(data.new[:5])
    assert np.allclose(upgrade.backward(x), expected, atol=1e-5)
    assert np.allclose(upgrade.backward(x[0]), expected[0], atol=1e-5)


def test_a_float64_beyond_float32_is_an_infinite_value(fitted, data):
    x = data.new.astype(np.float64)
    x[3, 1] = 1e300
    with pytest.raises(BadRow, match="row 3 of 'new' has an infinite value"):
        fitted.backward(x)


@pytest.mark.parametrize("kind", KINDS)
def test_one_vector_is_mapped_as_its_row_is(data, kind):
    upgrade = closed(backward_map=kind, lam=0.5).fit(*data)
    for apply, x in (
        (upgrade.backward, data.new),
        (upgrade.forward, data.old),
        (upgrade.place, data.old),
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
    fitted.place(old)
    assert np.array_equal(new, data.new)
    assert np.array_equal(old, data.old)


@pytest.mark.parametrize("x", [np.ones((3, 8), int), np.ones(8, bool), np.full((2, 8), "a")])
def test_what_is_not_floating_point_is_refused(fitted, x):
    with pytest.raises(BadInput, match=r"not floating point → pass the new model's vectors as"):
        fitted.backward(x)


def test_what_is_neither_a_vector_nor_rows_is_refused(fitted):
    with pytest.raises(BadInput, match=r"3 dimensions → pass one vector \(8,\) or an array \(rows"):
        fitted.backward(np.ones((2, 2, 8)))
    with pytest.raises(BadInput, match="0 dimensions"):
        fitted.backward(1.0)


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
    assert np.allclose(upgrade.place(old), padded, atol=1e-3)
    assert np.allclose(upgrade.as_stored(old), expected, atol=1e-3)
    assert np.array_equal(upgrade.as_stored(old[0]), upgrade.as_stored(old[:1])[0])


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
    assert np.array_equal(back.place(old), upgrade.place(old))
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
    assert repr(Upgrade(lam=3.0, solver="paper")) == "Upgrade(solver='paper', lam=3.0)"


@pytest.mark.parametrize(
    "use",
    [
        lambda u: u.backward(np.ones(3)),
        lambda u: u.forward(np.ones(3)),
        lambda u: u.place(np.ones(3)),
        lambda u: u.save("nowhere"),
        lambda u: u.hash_,
    ],
    ids=["backward", "forward", "place", "save", "hash_"],
)
def test_an_upgrade_that_is_not_fitted_says_so(use):
    with pytest.raises(BadInput, match=r"this upgrade is not fitted → call fit, or Upgrade\.load"):
        use(Upgrade())


def test_fit_needs_both_sides_once(data):
    with pytest.raises(BadInput, match="fit needs old and new → pass both arrays, or Pairs"):
        Upgrade().fit(data.old)
    pairs = Pairs.from_arrays(*data)
    with pytest.raises(BadInput, match="Pairs hold new and labels already → pass the pairs alone"):
        closed().fit(pairs, data.new)


def test_a_failed_fit_leaves_what_was_learned_before(data):
    upgrade = closed().fit(*data)
    before = upgrade.hash_
    bad = data.old.copy()
    bad[5] = np.nan
    with pytest.raises(BadRow, match="row 5 of 'old' has a NaN"):
        upgrade.fit(bad, data.new)
    assert upgrade.hash_ == before


@pytest.mark.parametrize("rows", [4, 6, 9])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_handful_of_pairs_can_be_learned_from(made, rows, labelled):
    old, new, _ = made(rows=rows)
    upgrade = closed().fit(old, new, np.arange(rows) % 2 if labelled else None)
    assert upgrade.config_.fit["validation_rows"] >= 2
    assert np.isfinite(upgrade.forward(old)).all()
    assert all(np.isfinite(list(case.values())).all() for case in upgrade.validation_.values())


def selected(upgrade, scores):
    return np.mean([scores[c][m] for c in upgrade.select_cases for m in upgrade.select_metrics])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backward", KINDS)
@pytest.mark.parametrize("noise", [0.8, 5.0])
def test_fast_never_ends_below_the_closed_form(made, seed, backward, noise):
    upgrade = quick(backward_map=backward, lam=0.5, epochs=3, seed=seed)
    upgrade.fit(*made(noise=noise, seed=seed))
    kept, start = upgrade.validation_, upgrade.closed_form_
    for metric in SELECT_METRICS:
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


def test_selection_is_by_the_cases_of_the_paper_by_default():
    assert Upgrade().get_params()["select_cases"] == SELECT_CASES
    assert SELECT_CASES == ("B(new)/F(old)", "F(old)/F(old)", "B(new)/old")
    assert SELECT_METRICS == ("cmc@1", "mAP")
