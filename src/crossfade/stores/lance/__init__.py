"""LanceDB: a table is a folder, of a disk or an object store, with journal and lock next to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.files.guards import reading
from crossfade.remote import is_remote, to_path
from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind
from crossfade.stores.values import FileValues, beside


def tables_in(folder: Path) -> list[Path]:
    """The tables in a folder, by their names."""
    with reading(folder):
        if not folder.is_dir():
            return []
        found = [path for path in folder.iterdir() if path.suffix == ".lance"]
        return sorted(path for path in found if not path.name.startswith("."))


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


def _tables(folder: str) -> list[str]:
    return [path.stem for path in tables_in(to_path(folder))]


KIND = StoreKind(
    "lancedb",
    "DIR/TABLE.lance (LanceDB)",
    _open,
    _kept,
    owns=lambda path: path.suffix == ".lance" or (path / "_versions").is_dir(),
    tables=_tables,
)
