"""Qdrant's engine in process (Qdrant Edge): a shard in a folder, without a server."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.qdrant_edge.store import QdrantEdgeStore

    return QdrantEdgeStore(where.at, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.qdrant_edge.store import value_in

    return value_in(where.at, key)


KIND = StoreKind(
    "qdrant-edge",
    "qdrant-edge:DIR (Qdrant's engine)",
    _open,
    _kept,
    schemes=("qdrant-edge",),
    table="",
    local=True,
)
