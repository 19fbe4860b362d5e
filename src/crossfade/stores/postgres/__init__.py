"""PostgreSQL with pgvector: added columns in a side table, the switch in one transaction."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.postgres.store import PostgresStore

    return PostgresStore(where.at, where.table, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.postgres.state import value_at

    return value_at(where.at, where.table, key)


def _tables(url: str) -> list[str]:
    from crossfade.stores.postgres.catalog import tables_at

    return tables_at(url)


KIND = StoreKind(
    "pgvector",
    "postgresql://HOST/DATABASE#TABLE (pgvector)",
    _open,
    _kept,
    schemes=("postgresql", "postgres"),
    tables=_tables,
)
