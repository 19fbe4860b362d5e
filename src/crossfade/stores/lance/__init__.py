"""LanceDB: a table is a folder, with the journal and the lock next to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind
from crossfade.stores.values import FileValues, beside


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.lance.store import LanceStore

    return LanceStore(where.at, **named)


KIND = StoreKind(
    "lancedb",
    "DIR/TABLE.lance (LanceDB)",
    _open,
    lambda where, key: FileValues(beside(Path(where.at), "json")).get(key),
    owns=lambda path: path.suffix == ".lance" or (path / "_versions").is_dir(),
)
