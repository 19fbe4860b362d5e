"""A plan and a fit on a device, here torch's own CPU: the same curves and scores as without it."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Held, Pairs, Upgrade, plan
from crossfade.solvers.preparation import measured_on
from crossfade.solvers.problem import Rows, Selection
from crossfade.solvers.settings import Settings

THERE = "cpu:0"
"""torch's CPU by a name of its own: `cpu` is numpy."""


def rows(seed=0, count=240):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 8
    new = np.eye(8)[labels] + 0.4 * rng.normal(size=(count, 8))
    old = new[:, :6] + 0.4 * rng.normal(size=(count, 6))
    return old.astype(np.float32), new.astype(np.float32), labels


def test_a_plan_made_there_promises_the_same():
    old, new, labels = rows()
    upgrade = Upgrade(solver="closed_form").fit(old[:120], new[:120], labels[:120])
    held = Held.of(Pairs.from_arrays(old[120:], new[120:], labels[120:]))
    given = {"optimize": ["mAP"], "orders": ["random", "far-mse"], "blends": [1.0, 0.5]}
    here = plan(upgrade, held, **given)
    there = plan(upgrade, held, **given, device=THERE)
    assert there.record.order == here.record.order
    for share in (0.0, 0.3, 1.0):
        ours, theirs = (p.quality_at(share, "mAP") for p in (here, there))
        assert theirs == pytest.approx(ours, abs=0.01)


def test_a_fit_is_measured_where_it_is_made():
    assert measured_on(Settings(device=THERE)) == THERE
    assert measured_on(Settings(solver="closed_form", device=THERE)) == THERE
    assert measured_on(Settings(solver="closed_form", device="auto")) == "cpu"
    old, new, labels = rows()
    upgrade = Upgrade(solver="closed_form").fit(old, new, labels)
    found = [
        Selection(Rows(old, new, old, labels), ["B(new)/old"], ["mAP"], device).scores(
            upgrade.backward_.map, upgrade.forward_.map
        )
        for device in ("cpu", THERE)
    ]
    assert found[1]["B(new)/old"]["mAP"] == pytest.approx(found[0]["B(new)/old"]["mAP"], abs=1e-3)
