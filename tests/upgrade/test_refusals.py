"""What an upgrade refuses: vectors of another model, bad rows, use before the fit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.upgrade.conftest import KINDS, closed

from crossfade import BadInput, Pairs, Upgrade
from crossfade.errors import BadRow


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
        fitted.in_shared_space(data.new)
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
        (upgrade.in_shared_space, data.old, "old"),
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


def test_a_float64_beyond_float32_is_an_infinite_value(fitted, data):
    x = data.new.astype(np.float64)
    x[3, 1] = 1e300
    with pytest.raises(BadRow, match="row 3 of 'new' has an infinite value"):
        fitted.backward(x)


@pytest.mark.parametrize("x", [np.ones((3, 8), int), np.ones(8, bool), np.full((2, 8), "a")])
def test_what_is_not_floating_point_is_refused(fitted, x):
    with pytest.raises(BadInput, match=r"not floating point → pass the new model's vectors as"):
        fitted.backward(x)


def test_what_is_neither_a_vector_nor_rows_is_refused(fitted):
    with pytest.raises(BadInput, match=r"3 dimensions → pass one vector \(8,\) or an array \(rows"):
        fitted.backward(np.ones((2, 2, 8)))
    with pytest.raises(BadInput, match="0 dimensions"):
        fitted.backward(1.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda u: u.backward(np.ones(3)),
        lambda u: u.forward(np.ones(3)),
        lambda u: u.in_shared_space(np.ones(3)),
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
