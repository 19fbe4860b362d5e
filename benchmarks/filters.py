"""Filtered searches through every store, against all vectors gone through by numpy.

    python -m benchmarks filters [--store pgvector] [--rows 100000] [--queries 100]

Of 20, 10, 1 and 0.1 % of the rows, the ten nearest to a query: once the rows that pass are any rows
(`apart`), once they lie on one side of the space (`along`), so that what is near the query mostly
does not pass. Searched is the shared column with its index, as during a migration; for pgvector
also the application's own column with an HNSW index. A store that goes through all rows is exact,
and is here to show that its filters are. Servers, and Qdrant's local mode, get a tenth of the rows.

`recall` is the mean over queries, `worst` its lowest tenth, `short` the number of searches that
gave fewer rows than pass the filter and were asked for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import machine
from benchmarks.stores import Postgres
from crossfade.files.arrow import to_arrow
from crossfade.journal.columns import STATE, VECTOR
from crossfade.stores import Column, open_store

DIM, LATENT, K, BATCH = 128, 24, 10, 5000
SHARES = (0.2, 0.1, 0.01, 0.001)


def vectors(rows: int, seed: int) -> np.ndarray:
    """In clusters of a space of few dimensions, as embeddings are."""
    fixed, rng = np.random.default_rng(7), np.random.default_rng(seed)
    centres, turn = fixed.normal(size=(100, LATENT)), fixed.normal(size=(LATENT, DIM))
    inner = centres[rng.integers(100, size=rows)] + rng.normal(size=(rows, LATENT))
    out = inner @ turn + 0.3 * rng.normal(size=(rows, DIM))
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True), np.float32)


def filters(old: np.ndarray) -> dict[str, np.ndarray]:
    """For each way and share a column that is 1 in that share of the rows."""
    rng = np.random.default_rng(4)
    ways = {"apart": rng.permutation(len(old)), "along": _places(old @ rng.normal(size=DIM))}
    return {
        f"{way}_{i}": (place < share * len(old)).astype(np.int32)
        for way, place in ways.items()
        for i, share in enumerate(SHARES)
    }


def _places(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.argsort(np.argsort(values)))


def table_of(old: np.ndarray, columns: dict[str, np.ndarray]) -> pa.Table:
    table = pa.table({"id": np.arange(len(old)), **columns})
    return table.append_column("vector", to_arrow(old))


@contextmanager
def lancedb(folder: Path, table: pa.Table) -> Iterator[str]:
    import lance

    lance.write_dataset(table, folder / "items.lance")
    yield str(folder / "items.lance")


@contextmanager
def parquet(folder: Path, table: pa.Table) -> Iterator[str]:
    import pyarrow.parquet as pq

    (folder / "items").mkdir()
    for first in range(0, len(table), 20_000):
        pq.write_table(table.slice(first, 20_000), folder / "items" / f"{first}.parquet")
    yield str(folder / "items")


@contextmanager
def qdrant(folder: Path, table: pa.Table) -> Iterator[str]:
    from qdrant_client import models

    from crossfade.stores.qdrant.client import local_client, release

    client = local_client(folder / "qdrant")
    params = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    client.create_collection("items", vectors_config={"vector": params})
    for batch in table.to_batches(max_chunksize=1000):
        points = [
            models.PointStruct(id=row.pop("id"), vector={"vector": row.pop("vector")}, payload=row)
            for row in batch.to_pylist()
        ]
        client.upsert("items", points)
    yield f"qdrant:{folder / 'qdrant'}#items"
    release(folder / "qdrant")


@contextmanager
def pgvector(folder: Path, table: pa.Table) -> Iterator[str]:
    import psycopg

    from crossfade.stores.postgres.copy import encode

    home = Postgres(folder)
    names = [name for name in table.column_names if name not in ("id", "vector")]
    with psycopg.connect(home.server.get_uri(), autocommit=True) as connection:
        fields = ", ".join(f"{name} int" for name in names)
        connection.execute(
            f"CREATE TABLE items (id bigint PRIMARY KEY, {fields}, vector vector({DIM}))"
        )
        for batch in table.to_batches(max_chunksize=BATCH):
            data = encode(list(batch.columns), ["integer", *["int4"] * len(names), "vector"])
            with connection.cursor().copy("COPY items FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(data)
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("CREATE INDEX ON items USING hnsw (vector vector_cosine_ops)")
        connection.execute("VACUUM ANALYZE items")
    yield f"{home.server.get_uri()}#items"
    home.close()


def names_of(table: pa.Table) -> list[str]:
    """The columns that are filtered by."""
    return [name for name in table.column_names if name not in ("id", "vector")]


def matrix(table: pa.Table) -> np.ndarray:
    values = table["vector"].combine_chunks().flatten()
    return np.asarray(values, np.float32).reshape(len(table), DIM)


@contextmanager
def sqlite(folder: Path, table: pa.Table) -> Iterator[str]:
    import apsw

    path, names = folder / "items.db", names_of(table)
    connection = apsw.Connection(str(path))
    fields = ", ".join(f"{name} int" for name in names)
    connection.execute(f"CREATE TABLE items (id INTEGER PRIMARY KEY, {fields}, vector BLOB)")
    blobs = [row.tobytes() for row in matrix(table)]
    marks = ", ".join("?" * (2 + len(names)))
    with connection:
        connection.executemany(
            f"INSERT INTO items VALUES ({marks})",  # noqa: S608
            list(zip(*(table[name].to_pylist() for name in ["id", *names]), blobs, strict=True)),
        )
    connection.close()
    yield f"sqlite:{path}#items"


@contextmanager
def faiss(folder: Path, table: pa.Table) -> Iterator[str]:
    import faiss as library
    import pyarrow.parquet as pq

    index = library.IndexIDMap2(library.IndexHNSWFlat(DIM, 16, library.METRIC_INNER_PRODUCT))
    index.add_with_ids(matrix(table), table["id"].to_numpy())
    library.write_index(index, str(folder / "items.index"))
    pq.write_table(table.drop_columns(["vector"]), folder / "items.parquet")
    yield f"faiss:{folder / 'items.index'}"


@contextmanager
def chroma(folder: Path, table: pa.Table) -> Iterator[str]:
    from urllib.parse import urlsplit

    import chromadb
    from chromadb.config import Settings
    from examples.documents import chroma_server

    with chroma_server(folder) as url:
        parts = urlsplit(url)
        settings = Settings(anonymized_telemetry=False)
        client = chromadb.HttpClient(parts.hostname, parts.port, settings=settings)
        made = client.create_collection(
            "items", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        for batch in table.to_batches(max_chunksize=1000):
            made.add(
                ids=[f"{key:09}" for key in batch["id"].to_pylist()],
                embeddings=np.array(batch["vector"].to_pylist(), np.float32),
                metadatas=batch.drop_columns(["id", "vector"]).to_pylist(),
            )
        yield f"chroma+{url}#items"


@contextmanager
def milvus(folder: Path, table: pa.Table) -> Iterator[str]:
    from examples.milvus_server import Server
    from pymilvus import DataType, MilvusClient

    server = Server(folder)
    client = MilvusClient(uri=server.uri)
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    for name in names_of(table):
        schema.add_field(name, DataType.INT32)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="HNSW", metric_type="COSINE", M=16, efConstruction=200)
    client.create_collection("items", schema=schema, index_params=index)
    for batch in table.to_batches(max_chunksize=5000):
        client.insert("items", batch.to_pylist())
    client.flush("items")
    yield f"{server.url}#items"
    client.close()
    server.stop()


@contextmanager
def qdrant_edge(folder: Path, table: pa.Table) -> Iterator[str]:
    import qdrant_edge as edge

    place = folder / "shard"
    place.mkdir()
    params = edge.EdgeVectorParams(size=DIM, distance=edge.Distance.Cosine)
    shard = edge.EdgeShard.create(str(place), edge.EdgeConfig(vectors={"vector": params}))
    for batch in table.to_batches(max_chunksize=1000):
        points = [
            edge.Point(id=row.pop("id"), vector={"vector": row.pop("vector")}, payload=row)
            for row in batch.to_pylist()
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
    shard.close()
    yield f"qdrant-edge:{place}"


# Servers and engines that take rows one by one get a tenth of them, as does what goes through all.
FEWER = ("chroma", "milvus", "qdrant", "qdrant-edge")
STORES: dict[str, Callable[[Path, pa.Table], Any]] = {
    "chroma": chroma,
    "faiss": faiss,
    "lancedb": lancedb,
    "milvus": milvus,
    "parquet": parquet,
    "pgvector": pgvector,
    "qdrant": qdrant,
    "qdrant-edge": qdrant_edge,
    "sqlite": sqlite,
}


def measure(kind: str, place: str, old: np.ndarray, columns: dict[str, Any], count: int) -> None:
    store = open_store(place)
    store.add_columns([Column(VECTOR, "vector", DIM), Column(STATE, "text")])
    for rows in store.stream([store.vector], size=BATCH):
        store.write(
            pa.RecordBatch.from_pydict(
                {
                    store.id: rows[store.id],
                    VECTOR: rows[store.vector],
                    STATE: pa.array(["forward"] * len(rows)),
                }
            )
        )
    store.build_index(VECTOR)
    queries = vectors(count, seed=5)
    scores = queries @ old.T
    for column in (VECTOR, *([store.vector] if kind == "pgvector" else [])):
        for name, keep in columns.items():
            way, share = name.split("_")
            passing = np.where(keep == 1, scores, -np.inf)
            wanted = min(K, int(keep.sum()))
            found, times, short = [], [], 0
            for query, row in zip(queries, passing, strict=True):
                nearest = set(np.argsort(-row)[:wanted].tolist())
                begin = time.perf_counter()
                hits = store.search(query, column=column, k=K, where={name: 1})
                times.append(time.perf_counter() - begin)
                short += len(hits) < wanted
                found.append(len(nearest & {int(hit.id) for hit in hits}) / wanted)
            low, middle = np.quantile(found, 0.1), 1000 * float(np.median(times))
            print(
                f"| {kind} | {column} | {way} | {100 * SHARES[int(share)]:g} % | "
                f"{np.mean(found):.3f} | {low:.2f} | {short} | {middle:.1f} |",
                flush=True,
            )
    store.close()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks filters", description=__doc__)
    parser.add_argument("--store", choices=sorted(STORES), action="append")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    print("| store | column | filter | passes | recall | worst | short | ms |\n" + "|---" * 8 + "|")
    for kind in chosen.store or sorted(STORES):
        rows = chosen.rows // 10 if kind in FEWER else chosen.rows
        old = vectors(rows, seed=2)
        columns = filters(old)
        with (
            tempfile.TemporaryDirectory() as name,
            STORES[kind](Path(name), table_of(old, columns)) as place,
        ):
            measure(kind, place, old, columns, chosen.queries)
