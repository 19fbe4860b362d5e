"""The application's side of each store, by the application's own library; no Crossfade here."""

from __future__ import annotations

from tests.adversary.tables.contract import Found, Refused, Table, apply

__all__ = ["KINDS", "Found", "Refused", "Table", "apply", "open_table"]
KINDS = ("lancedb", "pgvector", "parquet", "qdrant")


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
    from tests.adversary.tables.qdrant import QdrantTable

    return QdrantTable(place)
