"""The application's side of each store: what it does to its own rows, with its own library.

Nothing here goes through Crossfade, so that the tests see stores as their applications do.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from qdrant_client import models

from crossfade.files.arrow import to_arrow
from crossfade.stores.qdrant.client import local_client, release

TEXT_IDS = ("b", "a", "it's", "Ä", 'quo"te', "z", "gone")


def idle(rows: pa.RecordBatch) -> None:
    """For `promote`: of no row anything is to be written."""


class LanceApp:
    """A LanceDB user."""

    text_ids, unit_length = TEXT_IDS, False

    def __init__(self, folder: Path) -> None:
        import lancedb

        self.database = lancedb.connect(folder / "db")
        self.address = str(folder / "db" / "items.lance")

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.database.create_table("items", _table(ids, bodies, kinds, old))

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self._open().add(_table(ids, bodies, kinds, old))

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        table = self._open()
        table.update(where=f"id = {key!r}", values={"body": body, "vector": old.tolist()})

    def empty(self, key: Any) -> None:
        self._open().update(where=f"id = {key!r}", values_sql={"vector": "NULL"})

    def delete(self, key: Any) -> None:
        self._open().delete(f"id = {key!r}")

    def old(self) -> dict[Any, np.ndarray]:
        rows = self._open().to_arrow().select(["id", "vector"]).to_pylist()
        return {row["id"]: np.array(row["vector"], np.float32) for row in rows}

    def close(self) -> None:
        """Nothing is held open."""

    def _open(self) -> Any:
        return self.database.open_table("items")


class PostgresApp:
    """A pgvector user; every test has a database of its own on the session's server."""

    text_ids, unit_length = TEXT_IDS, False

    def __init__(self, folder: Path) -> None:
        from tests.stores.postgres import fresh_database

        self.url = fresh_database()
        self.address = f"{self.url}#items"

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        kind = "bigint" if isinstance(ids[0], int) else "text"
        self.run(
            f"CREATE TABLE items (id {kind} PRIMARY KEY, body text, kind int, "
            f"vector vector({old.shape[1]}))"
        )
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        vectors = [str(row.tolist()) for row in old]
        rows = list(zip(ids, bodies, kinds, vectors, strict=True))
        import psycopg

        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s, %s)", rows)

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        self.run(
            "UPDATE items SET body = %s, vector = %s WHERE id = %s", body, str(old.tolist()), key
        )

    def empty(self, key: Any) -> None:
        self.run("UPDATE items SET vector = NULL WHERE id = %s", key)

    def delete(self, key: Any) -> None:
        self.run("DELETE FROM items WHERE id = %s", key)

    def old(self) -> dict[Any, np.ndarray]:
        rows = self.run("SELECT id, vector::text FROM items")
        return {key: np.array(numbers(text), np.float32) for key, text in rows}

    def close(self) -> None:
        """Every statement has a connection of its own."""

    def run(self, statement: str, *values: Any) -> list:
        import psycopg

        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.strip("[]").split(",")]


class ParquetApp:
    """A folder of Parquet files: inserts are new files, changes and deletes replace one."""

    text_ids, unit_length = TEXT_IDS, False

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "items"
        self.folder.mkdir(parents=True)
        self.address = str(self.folder)

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        table = _table(ids, bodies, kinds, old)
        for part, first in enumerate(range(0, len(table), 25)):
            self._write(f"part-{part}.parquet", table.slice(first, 25))

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        number = len(list(self.folder.glob("*.parquet")))
        self._write(f"part-{number}.parquet", _table(ids, bodies, kinds, old))

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        name, table = self._find(key)
        rows = table.to_pylist()
        row = next(row for row in rows if row["id"] == key)
        row.update(body=body, vector=old.tolist())
        self._write(name, pa.Table.from_pylist(rows, table.schema))

    def empty(self, key: Any) -> None:
        name, table = self._find(key)
        rows = table.to_pylist()
        next(row for row in rows if row["id"] == key)["vector"] = None
        self._write(name, pa.Table.from_pylist(rows, table.schema))

    def delete(self, key: Any) -> None:
        name, table = self._find(key)
        self._write(name, table.filter(pc.not_equal(table["id"], key)))

    def old(self) -> dict[Any, np.ndarray]:
        tables = [pq.read_table(path) for path in self.folder.glob("*.parquet")]
        rows = [row for table in tables for row in table.select(["id", "vector"]).to_pylist()]
        return {row["id"]: np.array(row["vector"], np.float32) for row in rows}

    def close(self) -> None:
        """Nothing is held open."""

    def _find(self, key: Any) -> tuple[str, pa.Table]:
        for path in self.folder.glob("*.parquet"):
            table = pq.read_table(path)
            if key in table["id"].to_pylist():
                return path.name, table
        raise KeyError(key)

    def _write(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self.folder / f".{name}", row_group_size=10)
        (self.folder / f".{name}").replace(self.folder / name)


class QdrantApp:
    """A user of Qdrant's local mode, where all of a process share one client."""

    # Qdrant's ids are integers or UUIDs, and under cosine it keeps vectors at length one.
    text_ids = tuple(str(uuid.UUID(int=n << 96 | 7)) for n in (31, 4, 15, 926, 53, 58, 97))
    unit_length = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "qdrant"
        self.client = local_client(self.folder)
        self.address = f"qdrant:{self.folder}#items"

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        params = models.VectorParams(size=old.shape[1], distance=models.Distance.COSINE)
        self.client.create_collection("items", vectors_config={"vector": params})
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        rows = zip(ids, bodies, kinds, old, strict=True)
        self.client.upsert(
            "items",
            [
                models.PointStruct(
                    id=key, vector={"vector": v.tolist()}, payload={"body": body, "kind": kind}
                )
                for key, body, kind, v in rows
            ],
        )

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        kind = self.client.retrieve("items", [key])[0].payload["kind"]
        self.insert([key], [body], [kind], old[None])

    def empty(self, key: Any) -> None:
        self.client.delete_vectors("items", ["vector"], [key])

    def delete(self, key: Any) -> None:
        self.client.delete("items", models.PointIdsList(points=[key]))

    def old(self) -> dict[Any, np.ndarray]:
        found, _ = self.client.scroll("items", limit=10_000, with_vectors=True)
        return {record.id: np.array(record.vector["vector"], np.float32) for record in found}

    def close(self) -> None:
        release(self.folder)


class MilvusApp:
    """A user of milvus-lite, where all of a process share one server."""

    text_ids, unit_length = TEXT_IDS, False
    name = "items"

    def __init__(self, folder: Path) -> None:
        from crossfade.stores.milvus.client import local_client

        self.file = folder / "milvus.db"
        self.client = local_client(self.file)
        self.address = f"milvus:{self.file}#{self.name}"

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        create_in_milvus(self.client, self.name, ids, old.shape[1])
        self.insert(ids, bodies, kinds, old)

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        rows = zip(ids, bodies, kinds, old.astype(np.float32), strict=True)
        told = [{"id": k, "body": b, "kind": n, "vector": v} for k, b, n, v in rows]
        self.client.upsert(self.name, told)

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        kind = self._rows([key])[0]["kind"]
        self.insert([key], [body], [kind], old[None])

    def empty(self, key: Any) -> None:
        """Milvus wants a vector of every row: one that says nothing."""
        row = self._rows([key])[0]
        self.client.upsert(self.name, [{**row, "vector": np.zeros(len(row["vector"]), np.float32)}])

    def delete(self, key: Any) -> None:
        self.client.delete(self.name, ids=[key])

    def old(self) -> dict[Any, np.ndarray]:
        found = self.client.query(self.name, filter="kind >= 0", consistency_level="Strong")
        return {row["id"]: np.array(row["vector"], np.float32) for row in found}

    def close(self) -> None:
        from crossfade.stores.milvus.client import release

        release(self.file, self.client)

    def _rows(self, ids: list) -> list:
        return self.client.get(self.name, ids=ids, consistency_level="Strong")


class MilvusServerApp(MilvusApp):
    """The same on a server, the one of the test session."""

    def __init__(self, folder: Path) -> None:
        from pymilvus import MilvusClient
        from tests.stores.milvus_server import session_server

        server = session_server()
        self.client = MilvusClient(uri=server.uri)
        for name in self.client.list_collections():
            if name != "crossfade_state":
                self.client.drop_collection(name)
        self.address = f"{server.url}#{self.name}"

    def close(self) -> None:
        self.client.close()


def create_in_milvus(
    client: Any, name: str, ids: list, dim: int, metric: str = "COSINE", **more: Any
) -> None:
    """An empty collection of id, body, kind and vector, indexed and loaded."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, **more)
    if isinstance(ids[0], int):
        schema.add_field("id", DataType.INT64, is_primary=True)
    else:
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=100)
    schema.add_field("body", DataType.VARCHAR, max_length=1000)
    schema.add_field("kind", DataType.INT64)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type=metric)
    client.create_collection(name, schema=schema, consistency_level="Strong")
    client.create_index(name, index, sync=False)
    client.load_collection(name)


def _table(ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> pa.Table:
    vectors = to_arrow(old.astype(np.float32))
    return pa.table({"id": ids, "body": bodies, "kind": kinds, "vector": vectors})
