"""A store in use, an upgrade fitted on other rows, and an embedder that is a real little model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from tests.stores.conftest import app  # noqa: F401  (every store in turn)

from crossfade import Upgrade
from crossfade.journal.columns import STATE, VECTOR
from crossfade.migration import Migration
from crossfade.stores.rows import matrix

D, N, ROWS = 12, 16, 300


class Models:
    """Two models that see a text's letters, each through a matrix of its own."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.seen = rng.normal(size=(128, 10))
        self.views = [rng.normal(size=(10, dim)) for dim in (D, N)]
        self.means = [2 * rng.normal(size=dim) for dim in (D, N)]

    def embed(self, texts: list[str], side: int) -> np.ndarray:
        counts = np.array([np.bincount(list(t.encode()), minlength=128)[:128] for t in texts])
        features = np.tanh(counts @ self.seen / 3)
        if side == 0:
            # The old model is coarser.
            features = np.round(features * 2) / 2
        return (features @ self.views[side] + self.means[side]).astype(np.float32)

    def old(self, texts: list[str]) -> np.ndarray:
        return self.embed(texts, 0)

    def new(self, texts: list[str]) -> np.ndarray:
        return self.embed(texts, 1)


class Function:
    """An embedder that counts what it is asked."""

    name, needs_source = "the test's model", True

    def __init__(self, models: Models) -> None:
        self.models, self.asked = models, []

    def embed(self, ids, sources):
        self.asked += list(ids)
        return self.models.new(list(sources))


class World(NamedTuple):
    app: object
    models: Models
    folder: object
    upgrade: Upgrade
    texts: dict


def texts_of(rows: int, seed: int = 0) -> list[str]:
    """Words of a class, which begin with its letter, each with some letters of its own."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.random.default_rng(1234).choice(letters, size=(10, 16))
    words[:, 0] = letters[:10]
    rng = np.random.default_rng(seed)
    made = words[rng.integers(10, size=rows)]
    changed = rng.random(made.shape) < 0.4
    changed[:, 0] = False
    made[changed] = rng.choice(letters, size=int(changed.sum()))
    return ["".join(row) for row in made]


@pytest.fixture(scope="session")
def models() -> Models:
    return Models()


@pytest.fixture(scope="session")
def upgrade_folder(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgrade") / "upgrade"
    texts = texts_of(1200, seed=99)
    labels = np.array([ord(t[0]) for t in texts])
    upgrade = Upgrade(solver="closed_form", old_model="coarse", new_model="fine")
    upgrade.fit(models.old(texts), models.new(texts), labels).save(folder)
    return folder


@pytest.fixture
def world(app, models, upgrade_folder):  # noqa: F811
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    upgrade = Upgrade.load(upgrade_folder)
    return World(app, models, upgrade_folder, upgrade, dict(enumerate(texts)))


@pytest.fixture(scope="session")
def plan_folder(models, upgrade_folder, tmp_path_factory):
    """A plan made by the command, on pairs of its own."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("plan")
    texts = texts_of(400, seed=7)
    np.savez(
        folder / "pairs.npz",
        old=models.old(texts),
        new=models.new(texts),
        labels=np.array([ord(t[0]) for t in texts]),
    )
    command = [sys.executable, "-m", "crossfade", "plan", upgrade_folder, folder / "pairs.npz"]
    command += ["-o", folder / "plan", "--order", "near-mse", "--blend", "0.7", "--ask", "new"]
    subprocess.run([*map(str, command), "--json", str(folder / "plan.json")], check=True)
    return folder / "plan"


@pytest.fixture
def migration(world):
    made = Migration(world.app.address, world.folder)
    yield made
    made.close()


@pytest.fixture
def lifted(migration):
    migration.start(source="body", force=True)
    migration.forward(size=70)
    return migration


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def lifted_of(world, texts: list[str]) -> np.ndarray:
    """What lifted rows hold: F(old), turned back into the new model's space."""
    turn = world.upgrade.backward_.map.weight
    return world.upgrade.forward(world.models.old(texts)) @ turn


def filled_of(world, texts: list[str], a: float) -> np.ndarray:
    """What filled rows hold: the new model's own vectors, and 1 − a of the lifted ones."""
    return unit(a * unit(world.models.new(texts)) + (1 - a) * lifted_of(world, texts))


def shared_of(migration) -> dict:
    """State and shared vector of every row, by its id."""
    out = {}
    for rows in migration.store.stream([VECTOR, STATE]):
        vectors = matrix(rows[VECTOR])
        for i, key in enumerate(rows[migration.store.id].to_pylist()):
            out[key] = (rows[STATE][i].as_py(), vectors[i])
    return out
