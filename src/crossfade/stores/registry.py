"""The kinds of stores there are, and which of them an address names.

A kind is a value that says how its addresses look and how one is opened; it imports what it needs
when it is opened, so that a LanceDB user has no psycopg. Other distributions add theirs by an entry
point in the group `crossfade.stores` that names such a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from crossfade.distance import Distance, check_distance
from crossfade.errors import BadInput
from crossfade.files import list_arrays, split_name
from crossfade.files.guards import reading
from crossfade.remote import is_remote, to_path
from crossfade.stores.address import Address, unnamed, url_and_table
from crossfade.stores.contract import Store

GROUP = "crossfade.stores"
BUILT_IN = (
    "lance",
    "postgres",
    "qdrant",
    "qdrant_edge",
    "chroma",
    "milvus",
    "sqlite",
    "faiss",
    "parquet",
)


@dataclass(frozen=True)
class StoreKind:
    """One kind of store. It is told by the scheme of an address, or by what a folder holds.

    `open` is given the address and the keywords of `open_store`; `kept` gives what `get` would,
    by the address alone, before its columns are known.
    """

    name: str
    written: str
    """How its addresses are written, for messages."""
    open: Callable[..., Store]
    kept: Callable[[Address, str], str | None]
    schemes: tuple[str, ...] = ()
    table: str = "table"
    """What an address with a scheme names behind its #; empty where there is nothing to name."""
    local: bool = False
    """Whether behind the scheme may be a folder, without //."""
    owns: Callable[[Path], bool] | None = None
    """Whether a path without a scheme is one of these."""
    tables: Callable[[str], list[str]] | None = None
    """What tables there are at an address that names none, for the message that asks for one.

    Of a kind whose tables are files or folders, those in a folder.
    """


def kinds() -> Iterator[StoreKind]:
    """All kinds, those of other distributions before the one that takes any folder.

    Others are loaded when they are come to: one that is broken is in nobody's way but of those who
    ask for what this package does not know.
    """
    *first, last = built_in()
    yield from first
    yield from _others()
    yield last


@cache
def built_in() -> tuple[StoreKind, ...]:
    """The kinds of this package."""
    return tuple(import_module(f"crossfade.stores.{name}").KIND for name in BUILT_IN)


@cache
def _others() -> tuple[StoreKind, ...]:
    found = []
    for entry in entry_points(group=GROUP):
        try:
            kind = entry.load()
        except Exception as error:
            raise _broken(entry, f"cannot be loaded ({type(error).__name__}: {error})") from error
        if not isinstance(kind, StoreKind):
            raise _broken(entry, f"{entry.value} is no StoreKind")
        found.append(kind)
    return tuple(found)


def _broken(entry: EntryPoint, cause: str) -> BadInput:
    name = entry.dist.name if entry.dist is not None else "its distribution"
    return BadInput(cause, where=f"the store {entry.name!r}", step=f"mend or uninstall {name}")


def forms(some: Iterable[StoreKind]) -> str:
    """How stores are named, for messages."""
    *most, last = (kind.written for kind in some)
    return f"{', '.join(most)}, or {last}"


def address_of(address: str | Path) -> Address:
    """
    >>> address_of("postgresql://db/shop#items")
    Address(kind='pgvector', at='postgresql://db/shop', table='items')
    >>> address_of("shop/items.lance")
    Address(kind='lancedb', at='shop/items.lance', table='')

    A password may hold any character, as long as nothing behind it has an @:

    >>> address_of("postgresql://app:p@ss/w#rd[@db/shop#items").at
    'postgresql://app:p%40ss%2Fw%23rd%5B@db/shop'
    """
    text = str(address)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise BadInput("the address holds a control character", step=f"name {forms(kinds())}")
    scheme = text.split(":", 1)[0] if ":" in text else ""
    # A single letter is a drive.
    scheme = scheme if len(scheme) > 1 else ""
    for kind in kinds() if scheme else ():
        if scheme in kind.schemes:
            if not kind.table:
                if kind.tables is not None and (found := kind.tables(text)):
                    raise unnamed("file", text, found, "/")
                return Address(kind.name, text)
            parts = url_and_table(text, kind.table, kind.written, kind.local, kind.tables)
            return Address(kind.name, *parts)
    if scheme and "//" in text and not is_remote(text):
        raise BadInput(f"a store of kind {scheme!r} is not known", step=f"name {forms(kinds())}")
    folder, _, table = text.rpartition("#") if "#" in text else (text, "", "")
    path = to_path(folder) / f"{table}.lance" if table else to_path(folder)
    with reading(path):
        for kind in kinds():
            if kind.owns is not None and kind.owns(path):
                return Address(kind.name, str(path))
    if (error := _unnamed(text)) is not None:
        raise error
    raise BadInput("no such store", where=text, step=f"name {forms(kinds())}")


def _unnamed(folder: str) -> BadInput | None:
    """What is the matter with a folder that holds tables, and is none."""
    for kind in kinds():
        if kind.owns is not None and kind.tables is not None and (found := kind.tables(folder)):
            return unnamed(kind.table, folder, found)
    return None


def open_store(
    address: str | Path,
    *,
    id: str | None = None,
    vector: str | None = None,
    distance: Distance | None = None,
) -> Store:
    """The store at `address`.

    `id` and `vector` name its columns where they cannot be told, `distance` how its vectors are
    compared where no index says so (cosine by default).

    >>> import lance, pyarrow as pa, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"id": [7], "vector": vectors}), path)
    >>> store = open_store(path)
    >>> store.describe().rows, store.describe().dim
    (1, 2)
    """
    by = None if distance is None else check_distance(distance)
    named: dict[str, Any] = {"id": id, "vector": vector, "distance": by}
    where = address_of(address)
    return _kind(where).open(where, **named)


def kept_value(address: str | Path, key: str) -> str | None:
    """What `get(key)` of the store at `address` gives, by its address alone.

    >>> import lance, pyarrow as pa, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"key": [7], "a": vectors, "b": vectors}), path)
    >>> open_store(path, id="key", vector="b").put("stage", "started")
    >>> kept_value(path, "stage")
    'started'
    """
    where = address_of(address)
    return _kind(where).kept(where, key)


def _kind(where: Address) -> StoreKind:
    return next(kind for kind in kinds() if kind.name == where.kind)


def is_store(what: str) -> bool:
    """Whether this names a store: an address, a LanceDB table that is no pairs file, or a folder
    of Parquet files; or stores, as a folder of tables does that is no upgrade's own."""
    path = to_path(what)
    with reading(path):
        there = path.exists()
    if not there and ("#" in what or ":" in what.split("/", 1)[0]):
        return split_name(what)[1] is None
    if path.suffix == ".lance" and path.is_dir():
        names = {array.name for array in list_arrays(path)}
        return not {"old", "new"} <= names
    if not path.is_dir():
        return False
    if any(path.glob("*.parquet")):
        return True
    # An upgrade is one, whatever else has been put into its folder.
    return not (path / "config.json").exists() and _unnamed(what) is not None
