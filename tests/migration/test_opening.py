"""After `start` nobody names columns again: the journal knows them, on every store."""

from __future__ import annotations

import json

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from qdrant_client import models as qdrant
from tests.migration.conftest import Function, N, texts_of
from tests.stores.apps import LanceApp, MilvusApp, ParquetApp, PostgresApp
from tests.stores.sqlite.app import SqliteApp

from crossfade import Upgrade
from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import to_arrow
from crossfade.journal import open_migrating
from crossfade.migration import Migration
from crossfade.search import Searcher
from crossfade.stores import open_store
from crossfade.stores.registry import kept_value

ROWS = 90


def rows_of(texts: list[str], models) -> dict[str, np.ndarray]:
    """Two vectors a row, of which only `mine` is the old model's."""
    other = np.random.default_rng(8).normal(size=(len(texts), 5)).astype(np.float32)
    return {"mine": models.old(texts), "other": other}


def _create_in_milvus(client, texts: list[str], kinds: list[int], vectors) -> None:
    from pymilvus import DataType

    schema, index = client.create_schema(auto_id=False), client.prepare_index_params()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("body", DataType.VARCHAR, max_length=100)
    schema.add_field("kind", DataType.INT64)
    for name, values in vectors.items():
        schema.add_field(name, DataType.FLOAT_VECTOR, dim=values.shape[1])
        index.add_index(name, index_type="FLAT", metric_type="COSINE")
    client.create_collection("items", schema=schema)
    client.create_index("items", index, sync=False)
    client.load_collection("items")
    rows = [
        {"key": n, "body": text, "kind": kinds[n], **{k: v[n] for k, v in vectors.items()}}
        for n, text in enumerate(texts)
    ]
    client.insert("items", rows)


def create(app, texts: list[str], models) -> str:
    """A table whose columns nobody can tell; gives the name of its key."""
    vectors = rows_of(texts, models)
    kinds = [ord(text[0]) for text in texts]
    if isinstance(app, PostgresApp):
        app.run(
            "CREATE TABLE items (id text PRIMARY KEY, key bigint UNIQUE, body text, kind int, "
            f"mine vector({vectors['mine'].shape[1]}), other vector(5))"
        )
        with psycopg.connect(app.url) as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO items VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    (f"row {n}", n, text, kinds[n], *(str(v[n].tolist()) for v in vectors.values()))
                    for n, text in enumerate(texts)
                ],
            )
        return "key"
    if isinstance(app, SqliteApp):
        app.run(
            "CREATE TABLE items (id TEXT PRIMARY KEY, key INTEGER UNIQUE, body TEXT, kind INTEGER, "
            "mine BLOB, other BLOB)"
        )
        for n, text in enumerate(texts):
            blobs = [values[n].tobytes() for values in vectors.values()]
            row = (f"row {n}", n, text, kinds[n], *blobs)
            app.run("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", *row)
        return "key"
    if isinstance(app, LanceApp | ParquetApp):
        columns = {"key": range(ROWS), "body": texts, "kind": kinds}
        columns |= {name: to_arrow(values) for name, values in vectors.items()}
        table = pa.table(columns)
        if isinstance(app, LanceApp):
            app.database.create_table("items", table)
        else:
            app._write("part-0.parquet", table)
        return "key"
    if isinstance(app, MilvusApp):
        _create_in_milvus(app.client, texts, kinds, vectors)
        return "key"
    config = {
        name: qdrant.VectorParams(size=values.shape[1], distance=qdrant.Distance.COSINE)
        for name, values in vectors.items()
    }
    app.client.create_collection("items", vectors_config=config)
    app.client.upsert(
        "items",
        [
            qdrant.PointStruct(
                id=n,
                vector={name: values[n].tolist() for name, values in vectors.items()},
                payload={"body": text, "kind": kinds[n]},
            )
            for n, text in enumerate(texts)
        ],
    )
    return "id"


@pytest.fixture
def started(app, models, upgrade_folder):
    """The address of a store in a migration of its vector `mine`, and the name of its key."""
    texts = texts_of(ROWS)
    key = create(app, texts, models)
    with pytest.raises(BadInput, match=r"--vector|--id|no column 'id'"):
        open_migrating(app.address)
    migration = Migration(app.address, upgrade_folder, id=key, vector="mine")
    migration.start(source="body", force=True)
    migration.close()
    return app.address, key, texts


def test_every_step_takes_the_columns_from_the_journal(started, crossfade, models, plan_folder):
    place, key, _ = started
    ran = crossfade("migrate", "forward", place, "--json", "-")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["written"] == ROWS
    migration = Migration(place)
    assert (migration.store.id, migration.store.vector) == (key, "mine")
    migration.backfill(Function(models), plan=plan_folder, labels="kind", share=0.5)
    migration.close()
    status = json.loads(crossfade("migrate", "status", place, "--json", "-").out)
    assert (status["filled"], status["lifted"]) == (ROWS // 2, ROWS // 2)
    assert crossfade("migrate", "verify", place).code == 0
    assert crossfade("inspect", place).code == 0
    assert crossfade("migrate", "finish", place, "--yes", "--force").code == 0
    after = json.loads(crossfade("migrate", "status", place, "--json", "-").out)
    assert after["stage"] == "finished"
    store = open_migrating(place)
    assert (store.vector, store.describe().dim) == ("mine", N)
    store.close()


def test_rollback_takes_them_too_and_leaves_the_store_as_it_was(started, crossfade):
    place, _, _ = started
    for _ in range(2):
        ran = crossfade("migrate", "rollback", place)
        assert ran.code == 0, ran.err
    store = open_migrating(place)
    assert (store.vector, store.describe().added) == ("mine", ())
    store.close()
    # The migration is over: another may go by another column.
    store = open_migrating(place, vector="other", id=started[1])
    assert store.vector == "other"
    store.close()


def test_a_searcher_takes_them_by_the_address(started, models, upgrade_folder):
    place, _, texts = started
    searcher = Searcher(place, Upgrade.load(upgrade_folder))
    query = models.old(texts[7:8])[0]
    assert texts[searcher.search(old=query, k=1)[0].id] == texts[7]
    searcher.store.close()


def test_other_columns_than_those_of_the_migration_are_refused(started, crossfade, upgrade_folder):
    place, key, _ = started
    ran = crossfade("migrate", "status", place, "--vector", "other", "--id", key)
    assert ran.code == 2
    said = " ".join(ran.err.split())
    assert "its migration goes by the vector 'mine', not 'other' → leave it out" in said
    with pytest.raises(BadInput, match=r"goes by the (id|vector) '\w+', not 'nothing'"):
        open_migrating(place, vector="nothing")
    opened = open_store(place, id=key, vector="other")
    with pytest.raises(BadInput, match="goes by the vector 'mine', not 'other'"):
        Searcher(opened, Upgrade.load(upgrade_folder)).search(np.ones(N), k=1)
    opened.close()
    same = open_migrating(place, id=key, vector="mine")
    assert same.vector == "mine"
    same.close()


def test_a_value_is_read_by_the_address_alone(app, models, started):
    place, key, _ = started
    store = open_store(place, id=key, vector="mine")
    assert kept_value(place, "migration") == store.get("migration")
    assert kept_value(place, "nothing") is None
    store.put("mine", "Ä 'quoted'")
    assert kept_value(place, "mine") == "Ä 'quoted'"
    store.close()


def test_a_damaged_journal_is_told_without_the_columns(started):
    place, key, _ = started
    store = open_store(place, id=key, vector="mine")
    store.put("migration", "{}")
    store.close()
    with pytest.raises(StoreError, match="its migration journal is damaged"):
        open_migrating(place)
