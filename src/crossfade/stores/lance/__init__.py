"""LanceDB: a table is a folder, of a disk or an object store, with journal and lock next to it."""

from __future__ import annotations

from typing import Any

from crossfade.remote import is_remote, to_path
from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind
from crossfade.stores.values import FileValues, beside


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.lance.store import LanceStore

    return LanceStore(where.at, **named)


def _kept(where: Address, key: str) -> str | None:
    path = to_path(where.at)
    if is_remote(path):
        from crossfade.stores.lance.store import ledger_of

        ledger = ledger_of(path)
        return None if ledger is None else ledger.get(key)
    return FileValues(beside(path, "json")).get(key)


KIND = StoreKind(
    "lancedb",
    "DIR/TABLE.lance (LanceDB)",
    _open,
    _kept,
    owns=lambda path: path.suffix == ".lance" or (path / "_versions").is_dir(),
)
