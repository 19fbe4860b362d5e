"""A FAISS index in a file, with its ids in it or beside it, and what else rows have in a file."""

from __future__ import annotations

from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.faiss.store import FaissStore

    return FaissStore(where.at, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.faiss.store import kept_values

    return kept_values(where.at).get(key)


KIND = StoreKind("faiss", "faiss:FILE.index (FAISS)", _open, _kept, schemes=("faiss",), table="")
