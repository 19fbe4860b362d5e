"""Which rows an upgrade has seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade import Upgrade
from crossfade.sketch import SIZE, Seen, row_hashes, seen, sketch


def rows(count, seed=0, dim=3):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 7))
def test_of_few_rows_every_one_is_known(known, unknown, step):
    x, y = rows(known), rows(unknown, seed=1)
    kept = sketch(row_hashes(x[i : i + step]) for i in range(0, known, step))
    assert seen(kept, np.concatenate([x, y])) == Seen(known, known + unknown)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_of_many_rows_the_share_is_about_right(share):
    x = rows(5 * SIZE)
    kept = sketch([row_hashes(x)])
    assert len(kept) == SIZE
    mixed = np.concatenate([x[: int(share * 10_000)], rows(10_000 - int(share * 10_000), seed=1)])
    found = seen(kept, mixed)
    assert 1000 < found.rows < 3000
    assert found.share == pytest.approx(share, abs=0.05)


def test_rows_are_known_by_their_numbers_and_not_their_type():
    x = rows(50).astype(np.float16)
    kept = sketch([row_hashes(x)])
    assert seen(kept, x.astype(np.float64)).seen == 50
    assert row_hashes(np.array([[0.0]])) == row_hashes(np.array([[-0.0]]))


def test_hashes_do_not_collide_and_fill_their_range():
    grid = np.array(list(np.ndindex(40, 40, 40)), dtype=np.float32)
    hashes = row_hashes(grid)
    assert len(np.unique(hashes)) == len(grid)
    assert np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16).min() > 3500


def test_an_upgrade_knows_its_training_and_validation_rows(made, tmp_path):
    old, new, labels = made(rows=100)
    upgrade = Upgrade(solver="closed_form").fit(old[:60], new[:60], labels[:60])
    upgrade.save(tmp_path / "upgrade")
    for known in (upgrade, Upgrade.load(tmp_path / "upgrade")):
        assert known.seen(new) == Seen(60, 100)
        assert known.seen(new[60:]).share == 0.0
