"""Milvus: a server, or a file of milvus-lite."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.milvus.store import MilvusStore

    return MilvusStore(where.at, where.table, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.milvus.state import value_in

    return value_in(where.at, where.table, key)


def _tables(url: str) -> list[str]:
    from crossfade.stores.milvus.client import collections_at

    return collections_at(url)


KIND = StoreKind(
    "milvus",
    "milvus+http://HOST:PORT#COLLECTION or milvus:FILE.db#COLLECTION (Milvus)",
    _open,
    _kept,
    schemes=("milvus", "milvus+http", "milvus+https"),
    table="collection",
    local=True,
    tables=_tables,
)
