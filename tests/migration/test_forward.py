"""From the start of a migration to every row lifted, on every store."""

from __future__ import annotations

import numpy as np
from tests.migration.conftest import ROWS, lifted_of, shared_of


def brute(vectors: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    return np.argsort(-cosines, kind="stable")[:k].tolist()


def test_new_queries_work_from_start_on(world, migration):
    migration.start(source="body", force=True)
    query = world.models.new([world.texts[5]])[0]
    mapped = world.upgrade.backward(query)
    old = world.models.old(list(world.texts.values()))
    found = [hit.id for hit in migration.searcher().search(query, k=5)]
    assert found == brute(old, mapped[: old.shape[1]], 5)


def test_forward_writes_f_of_old_into_every_row(world, lifted):
    expected = lifted_of(world, list(world.texts.values()))
    found = shared_of(lifted)
    assert sorted(found) == list(range(ROWS))
    assert {state for state, _ in found.values()} == {"lifted"}
    np.testing.assert_allclose([found[i][1] for i in range(ROWS)], expected, atol=1e-6)
    assert lifted.status().stage == "forward"
    query = world.models.new([world.texts[5]])[0]
    hits = lifted.searcher().search(query, k=5, columns=["body"])
    assert [hit.id for hit in hits] == brute(expected, query, 5)
    assert hits[0].values["body"] == world.texts[hits[0].id]


def test_forward_again_does_nothing(lifted):
    assert lifted.forward().written == 0
