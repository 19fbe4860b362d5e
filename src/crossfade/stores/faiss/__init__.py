"""A FAISS index in a file, with its ids in it or beside it, and what else rows have in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.files.guards import reading
from crossfade.stores.address import Address
from crossfade.stores.contract import Store
from crossfade.stores.registry import StoreKind


def _open(where: Address, **named: Any) -> Store:
    from crossfade.stores.faiss.store import FaissStore

    return FaissStore(where.at, **named)


def _kept(where: Address, key: str) -> str | None:
    from crossfade.stores.faiss.store import kept_values

    return kept_values(where.at).get(key)


def _files(at: str) -> list[str]:
    folder = Path(at.removeprefix("faiss:"))
    with reading(folder):
        if not folder.is_dir():
            return []
        found = [path for path in folder.iterdir() if path.suffix in (".index", ".faiss")]
        return sorted(path.name for path in found if path.is_file() and path.name[0] != ".")


KIND = StoreKind(
    "faiss",
    "faiss:FILE.index (FAISS)",
    _open,
    _kept,
    schemes=("faiss",),
    table="",
    tables=_files,
)
