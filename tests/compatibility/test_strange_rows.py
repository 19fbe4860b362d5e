"""Rows whose sides do not belong together, and rows of other models, are told and not refused."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade, evaluate, plan
from crossfade.compatibility import Held
from crossfade.compatibility.cautions import strange_rows
from crossfade.pairs import Pairs

ROWS = 300


def seen(rows=ROWS, models=0, seed=0):
    """Items through two matrices, which are those of the `models`."""
    rng = np.random.default_rng(seed)
    views = np.random.default_rng(1000 + models)
    items = rng.normal(size=(rows, 40))
    old, new = (items @ views.normal(size=(40, dim)) for dim in (24, 32))
    return (old + 0.5 * rng.normal(size=old.shape)).astype("f4"), new.astype("f4")


@pytest.fixture(scope="module")
def upgrade():
    return Upgrade(solver="closed_form").fit(*seen(seed=1))


def held(old, new):
    return Held.of(Pairs.from_arrays(old, new, np.arange(len(old)) % 10))


@pytest.mark.parametrize("rows", [60, ROWS, 3000])
def test_rows_of_the_same_models_give_no_warning(upgrade, rows):
    for seed in range(5):
        assert strange_rows(upgrade, held(*seen(rows, seed=2 + seed))) == []


def test_shuffled_and_shifted_rows_are_told(upgrade):
    old, new = seen(seed=3)
    shuffled = old[np.random.default_rng(0).permutation(ROWS)]
    assert "agree no better than shuffled ones" in strange_rows(upgrade, held(shuffled, new))[0]
    moved = strange_rows(upgrade, held(np.roll(old, 1, axis=0), new))
    assert "row i of 'new' matches row i+1 of 'old'" in moved[0]


@pytest.mark.parametrize("rows", [100, ROWS, 3000])
def test_rows_of_other_models_are_told_though_they_belong_together(upgrade, rows):
    for models in range(1, 6):
        (text,) = strange_rows(upgrade, held(*seen(rows, models=models)))
        assert "of other models than it was fitted on" in text


def test_few_rows_tell_nothing(upgrade):
    old, new = seen(40)
    assert strange_rows(upgrade, held(old[::-1].copy(), new)) == []


def test_queries_are_looked_at_too(upgrade):
    old, new = seen(seed=4)
    asked_old, asked_new = seen(seed=5)
    pairs, queries = (
        Pairs.from_arrays(a, b, np.arange(ROWS) % 10)
        for a, b in ((old, new), (asked_old[::-1].copy(), asked_new))
    )
    (text,) = strange_rows(upgrade, Held.of(pairs, queries))
    assert "does not belong to row i of 'new' of the queries" in text


def test_evaluate_and_plan_pass_it_on(upgrade):
    strange = held(*seen(models=1))
    found = evaluate(upgrade, strange, metrics=["mAP"], resamples=100, definition=False)
    made = plan(upgrade, strange, optimize=["mAP"], orders=["random"], blends=[1.0])
    for warnings in (found.warnings, made.record.warnings):
        assert any("of other models than it was fitted on" in text for text in warnings)
