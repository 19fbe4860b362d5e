"""Chroma: a folder of its persistent client, or its server."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.chroma.store import ChromaStore

    return ChromaStore(where.at, where.table, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.chroma.state import value_in

    return value_in(where.at, where.table, key)


def _collections(at: str) -> list[str]:
    from crossfade.stores.chroma.client import connect

    database = connect(at)
    try:
        return database.names()
    finally:
        database.close()


KIND = StoreKind(
    "chroma",
    "chroma:DIR#COLLECTION or chroma+http://HOST:PORT#COLLECTION (Chroma)",
    _open,
    _kept,
    schemes=("chroma", "chroma+http", "chroma+https"),
    table="collection",
    local=True,
    tables=_collections,
)
