"""SQLite with sqlite-vec: vectors in a `vec0` table, or in a BLOB column of an ordinary one."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.sqlite.store import SqliteStore

    return SqliteStore(where.at, where.table, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.sqlite.state import value_in

    return value_in(where.at, where.table, key)


def _tables(at: str) -> list[str]:
    from crossfade.stores.sqlite.schema import tables_in

    return tables_in(at)


KIND = StoreKind(
    "sqlite",
    "sqlite:FILE#TABLE (SQLite)",
    _open,
    _kept,
    schemes=("sqlite",),
    local=True,
    tables=_tables,
)
