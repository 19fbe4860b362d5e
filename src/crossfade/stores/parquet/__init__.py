"""A folder of Parquet files, with added columns as files of their own in `_crossfade`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.remote import to_path
from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.lance import tables_in
from crossfade.stores.registry import StoreKind
from crossfade.stores.values import FileValues


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.parquet.store import ParquetStore

    return ParquetStore(where.at, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.parquet.store import VALUES, ledger_of

    path = to_path(where.at)
    ledger = ledger_of(path)
    return FileValues(path / VALUES).get(key) if ledger is None else ledger.get(key)


def _owns(path: Path) -> bool:
    """Any folder but one of LanceDB tables: what else it lacks is told when it is opened."""
    from crossfade.stores.parquet.base import base_paths

    return path.is_dir() and (not tables_in(path) or bool(base_paths(path)))


KIND = StoreKind("parquet", "a folder of Parquet files", _open, _kept, owns=_owns)
