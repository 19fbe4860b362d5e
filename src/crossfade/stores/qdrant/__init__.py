"""Qdrant: a server, or a folder in the client's local mode."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.qdrant.store import QdrantStore

    return QdrantStore(where.at, where.table, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.qdrant.state import value_in

    return value_in(where.at, where.table, key)


def _collections(url: str) -> list[str]:
    from crossfade.stores.qdrant.client import collections_at

    return collections_at(url)


KIND = StoreKind(
    "qdrant",
    "qdrant://HOST:PORT#COLLECTION or qdrant:DIR#COLLECTION (Qdrant)",
    _open,
    _kept,
    schemes=("qdrant", "qdrant+https"),
    table="collection",
    local=True,
    tables=_collections,
)
