"""Stores that ask both models at once: with the ranking of two searches, at every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from tests.migration.conftest import ROWS, D, Function, texts_of
from tests.stores.apps import LanceApp
from tests.stores.postgres import fresh_database

from crossfade import Upgrade
from crossfade.migration import Migration
from crossfade.search import Searcher
from crossfade.stores import Range, TwoSided, open_store

QUERIES = texts_of(8, seed=55)


class OneSided:
    """The same store, asked one search after the other."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "search_both":
            raise AttributeError(name)
        return getattr(self._store, name)


class Shop:
    """A table of vectors or half vectors, with integer or text ids."""

    def __init__(self, models: Any, kind: str, ids: str, index: str | None) -> None:
        self.url, self.models, self.kind = fresh_database(), models, kind
        texts = texts_of(ROWS)
        self.run(
            f"CREATE TABLE items (id {ids} PRIMARY KEY, body text, kind int, vector {kind}({D}))"
        )
        self.name = str if ids == "text" else int
        self.insert(range(ROWS), texts)
        if index is not None:
            self.run(f"CREATE INDEX ON items USING hnsw (vector {kind}_{index}_ops)")
            self.run("ANALYZE items")

    def insert(self, ids: Any, texts: list[str]) -> None:
        vectors = self.models.old(texts)
        rows = [
            (self.name(key), text, ord(text[0]), str(vector.tolist()))
            for key, text, vector in zip(ids, texts, vectors, strict=True)
        ]
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s, %s)", rows)

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


KINDS = [
    ("vector", "bigint", "cosine", None),
    ("vector", "bigint", "cosine", "cosine"),
    ("halfvec", "text", "cosine", "cosine"),
    ("vector", "text", "l2", "l2"),
    ("halfvec", "bigint", "dot", None),
]


@pytest.mark.parametrize(("kind", "ids", "distance", "index"), KINDS)
def test_one_statement_ranks_as_two_searches_do(
    models, upgrade_folder, plan_folder, kind, ids, distance, index
):
    shop = Shop(models, kind, ids, index)
    store = open_store(f"{shop.url}#items", distance=distance)
    migration = Migration(store, upgrade_folder)
    upgrade = Upgrade.load(upgrade_folder)
    assert isinstance(store, TwoSided)
    assert not isinstance(OneSided(store), TwoSided)

    def compare(**more: Any) -> int:
        return compared(store, upgrade, models, **more)

    migration.start(source="body", force=True)
    assert compare() == 10 * len(QUERIES)
    migration.forward()
    assert compare(k=20) == 20 * len(QUERIES)
    migration.backfill(
        Function(models), plan=plan_folder, labels="kind" if ids == "bigint" else None, share=0.4
    )
    # Rows come, go, and have vectors that nothing can be made of.
    shop.insert(range(9000, 9040), texts_of(40, seed=5))
    for key in range(20, 30):
        shop.run(f"DELETE FROM items WHERE id = '{key}'")  # noqa: S608
    zeros = f"array_fill(0, ARRAY[{D}])::{kind}"
    shop.run(f"UPDATE items SET vector = {zeros} WHERE id = '31'")  # noqa: S608
    shop.run("UPDATE items SET vector = NULL WHERE id = '32'")
    assert compare() == 10 * len(QUERIES)
    assert compare(where={"kind": [97, 98, 99]}, columns=["body", "crossfade_state"])
    assert compare(where={"kind": Range(least=100)}, k=3)
    assert compare(where={"kind": 7}) == 0
    migration.close()


@pytest.fixture
def app(tmp_path):
    """A table of LanceDB."""
    return LanceApp(tmp_path)


def test_lance_ranks_as_two_searches_do(world, migration, plan_folder):
    def compare(**more: Any) -> int:
        return compared(migration.store, world.upgrade, world.models, **more)

    assert isinstance(migration.store, TwoSided)
    migration.start(source="body", force=True)
    assert compare() == 10 * len(QUERIES)
    migration.forward()
    assert compare(k=20) == 20 * len(QUERIES)
    migration.backfill(Function(world.models), plan=plan_folder, labels="kind", share=0.4)
    come = texts_of(40, seed=5)
    kinds = [ord(text[0]) for text in come]
    world.app.insert(list(range(9000, 9040)), come, kinds, world.models.old(come))
    world.app.delete(20)
    world.app.empty(32)
    assert compare() == 10 * len(QUERIES)
    assert compare(where={"kind": [97, 98, 99]}, columns=["body", "crossfade_state"])
    assert compare(where={"kind": Range(least=100)}, k=3)
    assert compare(where={"kind": 7}) == 0


def compared(store: Any, upgrade: Upgrade, models: Any, **more: Any) -> int:
    """Hits of some queries, which are the same both ways."""
    ways = [Searcher(one, upgrade, refresh=0) for one in (store, OneSided(store))]
    found = 0
    for text in QUERIES:
        old, new = models.old([text])[0], models.new([text])[0]
        once, twice = (way.search(new, old=old, ask="both", **more) for way in ways)
        _same(once, twice)
        found += len(once)
    return found


def _same(once: list, twice: list) -> None:
    """Rows of one score may stand in any order, and the last of them be one or the other."""
    scores = [[hit.score for hit in hits] for hits in (once, twice)]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)
    if not once:
        return
    last = once[-1].score + 1e-3
    by_id = [{hit.id: hit for hit in hits if hit.score > last} for hits in (once, twice)]
    assert by_id[0].keys() == by_id[1].keys()
    for key, hit in by_id[0].items():
        assert hit.score == pytest.approx(by_id[1][key].score, rel=1e-4, abs=1e-4)
        assert hit.values == by_id[1][key].values
