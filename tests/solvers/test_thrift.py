"""Without labels F is trained only while that pays; with labels or named epochs, to the end."""

from __future__ import annotations

import numpy as np

from crossfade import Upgrade


def trained(history) -> tuple[int, int]:
    """Epochs that F was trained for, and those that were planned."""
    of_forward = [entry for entry in history if entry["block"] == "forward"]
    return len(of_forward), of_forward[0]["epochs"]


def test_training_ends_where_it_no_longer_pays():
    rng = np.random.default_rng(0)
    new = rng.normal(size=(600, 12)).astype("f4")
    # F is an affine map, which the closed form has found: there is nothing to gain.
    old = new[:, :8] @ rng.normal(size=(8, 8)).astype("f4")
    plain = Upgrade(hidden=[16]).fit(old, new)
    done, planned = trained(plain.config_.history)
    assert done < planned
    assert any("no longer paid" in note for note in plain.notes_)
    named = Upgrade(hidden=[16], epochs=6).fit(old, new)
    assert trained(named.config_.history) == (6, 6)
    labelled = Upgrade(hidden=[16]).fit(old, new, np.arange(600) % 6)
    done, planned = trained(labelled.config_.history)
    assert done == planned
