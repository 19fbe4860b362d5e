"""Do the rows of two sides belong together? Told of pairs that do, shuffled ones, shifted ones."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.pairs.matching import match, stretches


def found(old, new):
    """What is found in all of these rows, as a fit samples them."""
    looked_at = stretches(len(old))
    rows = np.concatenate([np.arange(part.start, part.stop) for part in looked_at])
    return match(old[rows].astype(np.float32), new[rows].astype(np.float32), looked_at)


def models(rows, dims=(48, 64), noise=0.5, classes=0, order="mixed", seed=0):
    """Items as two models see them: through a matrix each, with noise of their own."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(rows, 24))
    if classes:
        labels = rng.integers(classes, size=rows)
        labels = np.sort(labels) if order == "sorted" else labels
        items += 3 * rng.normal(size=(classes, 24))[labels]
    views = [items @ rng.normal(size=(24, dim)) for dim in dims]
    views = [x + noise * x.std() * rng.normal(size=x.shape) + rng.normal(size=x[0].shape)
             for x in views]  # fmt: skip
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in views]


SCENES = {
    "fifty": {"rows": 50},
    "a few hundred": {"rows": 300},
    "many": {"rows": 20_000},
    "fewer than dimensions": {"rows": 60, "dims": (3000, 4096)},
    "weakly related": {"rows": 400, "noise": 2.0},
    "in classes": {"rows": 2000, "classes": 40},
    "sorted by class": {"rows": 2000, "classes": 40, "order": "sorted"},
    "few dimensions": {"rows": 400, "dims": (6, 8)},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_pairs_belong_together_and_shuffled_rows_do_not(scene, seed):
    old, new = models(**SCENES[scene], seed=seed)
    assert found(old, new).belongs is True
    shuffled = found(old[np.random.default_rng(seed).permutation(len(old))], new)
    assert shuffled.belongs is False
    assert shuffled.shift == 0
    assert abs(shuffled.score) < 6


@pytest.mark.parametrize("shift", [1, -1, 3, -8])
@pytest.mark.parametrize("scene", ["a few hundred", "many", "in classes", "sorted by class"])
def test_a_shift_is_named(scene, shift):
    old, new = models(**SCENES[scene])
    moved = found(np.roll(old, shift, axis=0), new)
    # Row i of new is now beside the item that old has `shift` rows further on.
    assert (moved.belongs, moved.shift, moved.where) == (False, shift, None)


def test_a_row_that_one_side_lacks_in_the_middle_is_found():
    old, new = models(4000)
    old[1000:3000] = np.roll(old[1000:3000], 1, axis=0)
    moved = found(old, new)
    assert (moved.belongs, moved.shift) == (False, 1)
    assert 900 < moved.where.start < 3000


def test_a_part_that_is_shuffled_is_told():
    old, new = models(4000)
    old[2000:] = old[2000:][np.random.default_rng(0).permutation(2000)]
    part = found(old, new)
    assert part.belongs is True
    assert all(rows.start >= 2000 - 64 for rows in part.loose)
    assert len(part.loose) >= 3
    assert found(*models(4000)).loose == ()


def test_classes_that_come_in_turn_are_no_shift():
    # Moved by a few rows every class meets another one, always the same: all but as good a match.
    for seed in range(10):
        rng = np.random.default_rng(seed)
        items = rng.normal(size=(6, 5))[np.arange(400) % 6] + 0.4 * rng.normal(size=(400, 5))
        old = items @ rng.normal(size=(5, 6)) + 0.2 * rng.normal(size=(400, 6))
        assert found(old, items @ rng.normal(size=(5, 8))).belongs is True


def test_models_that_know_no_more_than_classes_are_paired_by_them():
    rng = np.random.default_rng(0)
    labels = rng.integers(8, size=600)
    old, new = (rng.normal(size=(8, 16))[labels] + rng.normal(size=(600, 16)) for _ in range(2))
    assert found(old, new).belongs is True
    assert found(old[rng.permutation(600)], new).belongs is False


@pytest.mark.parametrize("repeat", [2, 20])
def test_items_that_come_several_times_running_raise_no_alarm(repeat):
    old, new = (np.repeat(x, repeat, axis=0) for x in models(600 // repeat))
    assert found(old, new).belongs is True


def test_items_that_come_again_and_again_raise_no_alarm():
    rng = np.random.default_rng(0)
    chosen = rng.integers(30, size=600)
    # Each time with the noise of its batch.
    old, new = (x[chosen] + 1e-4 * rng.normal(size=(600, x.shape[1])) for x in models(30))
    assert found(old, new).belongs is True
    assert found(old[rng.permutation(600)], new).belongs is False


def test_a_model_paired_with_itself_belongs_to_itself():
    old, _ = models(300)
    assert found(old, old).belongs is True


def test_rows_that_are_all_the_same_tell_nothing():
    old, new = models(200)
    assert found(old, np.ones_like(new)).belongs is None


def test_a_shuffled_side_passes_next_to_never():
    rng = np.random.default_rng(0)
    passed = 0
    for seed in range(100):
        old, new = models(100, dims=(12, 16), classes=5, seed=seed)
        passed += found(old[rng.permutation(100)], new).belongs is not False
    assert passed <= 2
