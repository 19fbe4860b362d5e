"""Two models that the harness knows by heart, and the upgrade and plan between them.

Both see a text through one latent vector, so that F(old) and B(new) of a text are near each other:
a row that nobody touches is found by its own vector at every stage, whatever was done to it. They
are not the same, so that a lifted row is told from a filled one.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
D, N = 8, 12
# What a filled row stores: a·B(new) + (1 − a)·F(old), so that it depends on text and old vector.
BLEND = 0.7
_NOISE = 0.06
_PAIRS, _PLANNED = 600, 120


@cache
def _views() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(20)
    return (
        np.linalg.qr(rng.normal(size=(D, D)))[0],
        np.linalg.qr(rng.normal(size=(N, D)))[0].T,
    )


def _seen(texts: Sequence[str], dim: int, side: str) -> tuple[NDArray[np.float64], ...]:
    """What every text is, and what one model alone sees in it."""
    latent, own = np.empty((len(texts), D)), np.empty((len(texts), dim))
    for row, text in enumerate(texts):
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        latent[row] = np.random.default_rng(number).normal(size=D)
        own[row] = np.random.default_rng([number, ord(side[0])]).normal(size=dim)
    return latent, own


def old(texts: Sequence[str]) -> Float:
    """The old model's vectors of texts, (rows, D)."""
    latent, own = _seen(texts, D, "old")
    return np.asarray(latent @ _views()[0] + _NOISE * own, np.float32)


def new(texts: Sequence[str]) -> Float:
    """The new model's vectors of texts, (rows, N)."""
    latent, own = _seen(texts, N, "new")
    return np.asarray(latent @ _views()[1] + _NOISE * own, np.float32)


class Embedder:
    """The new model as a backfill asks it: of the text as it was read."""

    name, needs_source = "the adversary's model", True

    def embed(self, ids: Sequence[int], sources: Sequence[str]) -> Float:
        return new(list(sources))


def make_upgrade(folder: Path) -> Path:
    """Fit the upgrade on texts of its own, and save it."""
    from crossfade import Upgrade

    texts = [f"a pair {number}" for number in range(_PAIRS)]
    upgrade = Upgrade(solver="closed_form", old_model="coarse", new_model="fine")
    return upgrade.fit(old(texts), new(texts)).save(folder)


def make_plan(folder: Path, upgrade: Path) -> Path:
    """A plan as a user makes one, by the command."""
    texts = [f"planned {number}" for number in range(_PLANNED)]
    pairs = folder.with_name("planned.npz")
    np.savez(pairs, old=old(texts), new=new(texts), labels=np.arange(_PLANNED) % 6)
    command = [sys.executable, "-m", "crossfade", "plan", str(upgrade), str(pairs)]
    command += ["-o", str(folder), "--order", "random", "--blend", str(BLEND), "--ask", "new"]
    done = subprocess.run(command, capture_output=True, text=True)
    # Exit code 1 is the plan's verdict, that a backfill is not worth it: here it is done anyway.
    if not (folder / "plan.json").is_file():
        raise RuntimeError(f"no plan was made: {done.stderr}")
    return folder
