"""The application's side of each store, by the application's own library; no Crossfade here."""

from __future__ import annotations

from tests.adversary.tables.contract import Found, Refused, Table, apply

__all__ = ["IN_PROCESS", "KINDS", "Found", "Refused", "Table", "apply", "open_table"]
KINDS = (
    "lancedb",
    "pgvector",
    "parquet",
    "qdrant",
    "qdrant-edge",
    "sqlite",
    "faiss",
    "chroma",
    "milvus",
    "milvus-server",
)
# Of which one process may have the store open: the one that is killed.
IN_PROCESS = ("qdrant", "qdrant-edge", "milvus")


def open_table(kind: str, place: str) -> Table:
    """The table at the address that Crossfade knows it by; imports what only this store needs."""
    if kind == "lancedb":
        from tests.adversary.tables.lance import LanceTable

        return LanceTable(place)
    if kind == "pgvector":
        from tests.adversary.tables.postgres import PostgresTable

        return PostgresTable(place)
    if kind == "parquet":
        from tests.adversary.tables.parquet import ParquetTable

        return ParquetTable(place)
    if kind == "faiss":
        from tests.adversary.tables.faiss import FaissTable

        return FaissTable(place)
    if kind == "sqlite":
        from tests.adversary.tables.sqlite import SqliteTable

        return SqliteTable(place)
    if kind in ("milvus", "milvus-server"):
        from tests.adversary.tables.milvus import MilvusTable

        return MilvusTable(place)
    if kind == "chroma":
        from tests.adversary.tables.chroma import ChromaTable

        return ChromaTable(place)
    if kind == "qdrant-edge":
        from tests.adversary.tables.qdrant_edge import QdrantEdgeTable

        return QdrantEdgeTable(place)
    from tests.adversary.tables.qdrant import QdrantTable

    return QdrantTable(place)
