"""What a user types to name a store, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urldefrag, urlsplit

from crossfade.errors import BadInput

KNOWN = (
    "DIR/TABLE.lance (LanceDB), postgresql://HOST/DATABASE#TABLE (pgvector), "
    "qdrant://HOST:PORT#COLLECTION or qdrant:DIR#COLLECTION (Qdrant), or a folder of Parquet files"
)


@dataclass(frozen=True)
class Address:
    """A kind of store, where it is, and for databases the table or collection."""

    kind: Literal["lancedb", "pgvector", "qdrant", "parquet"]
    at: str
    table: str = ""

    @property
    def name(self) -> str:
        """How messages call it; holds no secret.

        >>> Address("pgvector", "postgresql://app:secret@db/shop", "items").name
        'postgresql://db/shop#items'
        """
        return safe_name(f"{self.at}#{self.table}") if self.table else self.at

    @classmethod
    def of(cls, place: str | Path) -> Address:
        """
        >>> Address.of("postgresql://db/shop#items")
        Address(kind='pgvector', at='postgresql://db/shop', table='items')
        >>> Address.of("shop/items.lance")
        Address(kind='lancedb', at='shop/items.lance', table='')
        """
        text = str(place)
        scheme = text.split(":", 1)[0] if ":" in text else ""
        if scheme in ("postgresql", "postgres"):
            url, table = urldefrag(text)
            return cls("pgvector", url, _named(table, "table", text))
        if scheme in ("qdrant", "qdrant+https"):
            url, collection = urldefrag(text)
            return cls("qdrant", url, _named(collection, "collection", text))
        if scheme and "//" in text:
            raise BadInput(f"a store of kind {scheme!r} is not known", step=f"name {KNOWN}")
        folder, table = urldefrag(text)
        path = Path(folder) / f"{table}.lance" if table else Path(folder)
        if path.suffix == ".lance" or (path / "_versions").is_dir():
            return cls("lancedb", str(path))
        if path.is_dir():
            return cls("parquet", str(path))
        raise BadInput("no such store", where=text, step=f"name {KNOWN}")


def safe_name(url: str) -> str:
    """A URL without its password, its user and its query, fit for logs.

    >>> safe_name("postgresql://app:secret@db:5432/shop?sslkey=x#items")
    'postgresql://db:5432/shop#items'
    >>> safe_name("qdrant:shop/db#items")
    'qdrant:shop/db#items'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    slashes = "//" if parts.netloc else ""
    return f"{parts.scheme}:{slashes}{host}{parts.path}{fragment}"


def _named(value: str, what: str, text: str) -> str:
    if not value:
        raise BadInput(
            f"names no {what}", where=safe_name(text), step=f"add #{what.upper()} to the address"
        )
    return value
