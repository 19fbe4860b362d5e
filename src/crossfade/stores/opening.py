"""From what a user types to an open store, or to what it keeps for us before its columns are known.

Imports go by need: a LanceDB user has no psycopg.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.errors import BadInput
from crossfade.stores.address import Address
from crossfade.stores.contract import METRICS, Metric, Store
from crossfade.stores.values import FileValues, beside


def open_store(
    place: str | Path,
    *,
    id: str | None = None,
    vector: str | None = None,
    metric: Metric | None = None,
) -> Store:
    """The store at `place`.

    `id` and `vector` name its columns where they cannot be told, `metric` how its vectors are
    compared where no index says so (cosine by default).

    >>> import lance, pyarrow as pa, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"id": [7], "vector": vectors}), path)
    >>> store = open_store(path)
    >>> store.describe().rows, store.describe().dim
    (1, 2)
    """
    if metric is not None and metric not in METRICS:
        raise BadInput(f"there is no metric {metric!r}", step=f"use one of {', '.join(METRICS)}")
    named: dict[str, Any] = {"id": id, "vector": vector, "metric": metric}
    where = Address.of(place)
    match where.kind:
        case "pgvector":
            from crossfade.stores.postgres import PostgresStore

            return PostgresStore(where.at, where.table, **named)
        case "qdrant":
            from crossfade.stores.qdrant import QdrantStore

            return QdrantStore(where.at, where.table, **named)
        case "lancedb":
            from crossfade.stores.lance import LanceStore

            return LanceStore(where.at, **named)
        case "parquet":
            from crossfade.stores.parquet import ParquetStore

            return ParquetStore(where.at, **named)


def kept_value(place: str | Path, key: str) -> str | None:
    """What `get(key)` of the store at `place` gives, by its address alone.

    >>> import lance, pyarrow as pa, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"key": [7], "a": vectors, "b": vectors}), path)
    >>> open_store(path, id="key", vector="b").put("stage", "started")
    >>> kept_value(path, "stage")
    'started'
    """
    where = Address.of(place)
    match where.kind:
        case "pgvector":
            from crossfade.stores.pgstate import value_at

            return value_at(where.at, where.table, key)
        case "qdrant":
            from crossfade.stores.qdrant_state import value_in

            return value_in(where.at, where.table, key)
        case "lancedb":
            return FileValues(beside(Path(where.at), "json")).get(key)
        case "parquet":
            from crossfade.stores.parquet import VALUES

            return FileValues(Path(where.at) / VALUES).get(key)
