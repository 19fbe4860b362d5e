"""An upgrade, pairs to plan on, and a gallery to order."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old, new, labels = made(rows=600, noise=1.2)
    Upgrade(solver="closed_form").fit(old[:300], new[:300], labels[:300]).save("mine")
    np.savez("fitted.npz", old=old[:300], new=new[:300], labels=labels[:300])
    np.savez("held.npz", old=old[300:], new=new[300:], labels=labels[300:])
    np.savez("mixed.npz", old=old[200:], new=new[200:], labels=labels[200:])
    np.save("gallery.npy", old)
    np.save("gallery_labels.npy", labels)
    np.save("ids.npy", np.random.default_rng(0).permutation(10_000)[:600])
    return tmp_path


QUICK = ["--blend", "1", "--blend", "0.5"]
