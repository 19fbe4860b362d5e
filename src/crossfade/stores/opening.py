"""From what a user types to an open store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

from crossfade.errors import BadInput
from crossfade.stores.contract import METRICS, Metric, Store

KNOWN = (
    "DIR/TABLE.lance (LanceDB), postgresql://HOST/DATABASE#TABLE (pgvector), "
    "qdrant://HOST:PORT#COLLECTION or qdrant:DIR#COLLECTION (Qdrant), or a folder of Parquet files"
)


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
    text = str(place)
    scheme = text.split(":", 1)[0] if ":" in text else ""
    if scheme in ("postgresql", "postgres"):
        from crossfade.stores.postgres import PostgresStore

        url, table = urldefrag(text)
        return PostgresStore(url, _named(table, "table", text), **named)
    if scheme in ("qdrant", "qdrant+https"):
        from crossfade.stores.qdrant import QdrantStore

        url, collection = urldefrag(text)
        return QdrantStore(url, _named(collection, "collection", text), **named)
    if scheme and "//" in text:
        raise BadInput(f"a store of kind {scheme!r} is not known", step=f"name {KNOWN}")
    folder, table = urldefrag(text)
    path = Path(folder) / f"{table}.lance" if table else Path(folder)
    if path.suffix == ".lance" or (path / "_versions").is_dir():
        from crossfade.stores.lance import LanceStore

        return LanceStore(path, **named)
    if path.is_dir():
        from crossfade.stores.parquet import ParquetStore

        return ParquetStore(path, **named)
    raise BadInput("no such store", where=text, step=f"name {KNOWN}")


def safe_name(url: str) -> str:
    """A URL without its password, its user and its query, fit for logs.

    >>> safe_name("postgresql://app:secret@db:5432/shop?sslkey=x#items")
    'postgresql://db:5432/shop#items'
    >>> safe_name("qdrant:shop/db#items")
    'qdrant:shop/db#items'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    slashes = "//" if parts.netloc else ""
    return f"{parts.scheme}:{slashes}{host}{parts.path}{fragment}"


def _named(value: str, what: str, text: str) -> str:
    if not value:
        raise BadInput(
            f"names no {what}", where=safe_name(text), step=f"add #{what.upper()} to the address"
        )
    return value
