"""kill -9 at random moments of every step: nothing lost, nothing twice, nothing wrong."""

from __future__ import annotations

import numpy as np
import pytest
from tests.faults.migrating import quiet, with_kills
from tests.migration.conftest import texts_of
from tests.stores.apps import LanceApp, PostgresApp

from crossfade import Upgrade
from crossfade.journal import open_migrating
from crossfade.journal.columns import STATE, VECTOR
from crossfade.migration import Migration
from crossfade.stores.rows import matrix

ROWS, PIECE, KILLS = 400, 80, 30
APPS = {"lancedb": LanceApp, "pgvector": PostgresApp}


@pytest.fixture(params=sorted(APPS))
def make(request, tmp_path, models, upgrade_folder, plan_folder):
    """Makes the same store anew, and the arguments of the steps on it."""
    texts = texts_of(ROWS)
    old, new = models.old(texts), models.new(texts)
    np.savez(tmp_path / "new.npz", ids=np.arange(ROWS), vectors=new)

    def fresh(name: str):
        folder = tmp_path / name
        folder.mkdir()
        app = APPS[request.param](folder)
        # In pieces, as tables grow: Lance keeps each as a fragment, and writes columns by fragment.
        for first in range(0, ROWS, PIECE):
            ids = list(range(first, first + PIECE))
            rows = [texts[i] for i in ids], [ord(texts[i][0]) for i in ids], old[ids]
            (app.insert if first else app.create)(ids, *rows)
        places = (app.address, str(upgrade_folder), str(plan_folder), str(tmp_path / "new.npz"))
        return app, places

    return fresh


def shared(place: str) -> dict[int, tuple[str, np.ndarray]]:
    store = open_migrating(place)
    out = {}
    for rows in store.stream([VECTOR, STATE]):
        vectors = matrix(rows[VECTOR])
        states = rows[STATE].to_pylist()
        for i, key in enumerate(rows[store.id].to_pylist()):
            assert key not in out
            out[key] = (states[i], vectors[i])
    store.close()
    return out


def final(place: str) -> dict[int, np.ndarray]:
    store = open_migrating(place)
    out = {}
    for rows in store.stream([store.vector]):
        for key, vector in zip(rows[store.id].to_pylist(), matrix(rows[store.vector]), strict=True):
            assert key not in out
            out[key] = vector
    assert store.describe().added == ()
    store.close()
    return out


def test_killed_again_and_again_a_migration_ends_as_an_undisturbed_one(
    make,
    models,
    upgrade_folder,
):
    upgrade = Upgrade.load(upgrade_folder)
    query = models.new(texts_of(1, seed=5))[0]
    steps = ["start", "forward", "backfill"]
    _, arguments = make("quiet")
    seconds = quiet(steps, arguments)
    expected = shared(arguments[0])
    assert sorted(expected) == list(range(ROWS))
    assert sum(state == "filled" for state, _ in expected.values()) == int(0.6 * ROWS)
    ending = quiet(["finish"], arguments)
    expected_final = final(arguments[0])
    kills, seed = 0, 0
    while kills < KILLS:
        app, arguments = make(f"killed{seed}")
        before = app.old()

        def searching(arguments=arguments, app=app, before=before):
            """After every kill: the old vectors are all there, and search answers."""
            after = app.old()
            assert sorted(after) == sorted(before)
            assert all((after[key] == before[key]).all() for key in before)
            migration = Migration(arguments[0], upgrade)
            if migration.store.get("migration") is not None:
                assert len(migration.searcher().search(query, k=10)) == 10
            migration.close()

        kills += with_kills(seconds, arguments, seed, searching)
        found = shared(arguments[0])
        assert sorted(found) == sorted(expected)
        for key, (state, vector) in expected.items():
            assert found[key][0] == state
            np.testing.assert_allclose(found[key][1], vector, atol=1e-6)
        migration = Migration(arguments[0], upgrade)
        assert migration.verify().passed
        migration.close()
        kills += with_kills(ending, arguments, seed)
        ended = final(arguments[0])
        assert sorted(ended) == sorted(expected_final)
        for key, vector in expected_final.items():
            np.testing.assert_allclose(ended[key], vector, atol=1e-6)
        seed += 1
    print(f"{kills} kills over {seed} migrations; undisturbed seconds: {seconds | ending}")


def test_killed_again_and_again_a_rollback_leaves_the_old_vectors(make, upgrade_folder):
    _, arguments = make("quiet")
    seconds = quiet(["start", "forward", "rollback"], arguments)
    kills, seed = 0, 0
    while kills < 8:
        app, arguments = make(f"rolled{seed}")
        before = app.old()
        kills += with_kills(seconds, arguments, 100 + seed)
        after = app.old()
        assert sorted(after) == sorted(before)
        assert all((after[key] == before[key]).all() for key in before)
        migration = Migration(arguments[0], upgrade_folder)
        assert migration.store.describe().added == ()
        assert migration.journal.stage == "rolled back"
        migration.close()
        seed += 1
