"""What PostgreSQL's catalog says of a table: columns, key, vectors and their indexes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.stores.address import MOST_LISTED, safe_name
from crossfade.stores.names import PREFIX
from crossfade.stores.postgres.connection import Pool
from crossfade.stores.postgres.copy import Kind
from crossfade.stores.postgres.statements import (
    ADDED_COLUMNS,
    COLUMNS,
    TABLES_WITH_VECTORS,
    VECTOR_INDEXES,
    Statements,
)

_KIND_OF: dict[str, Kind] = {
    "smallint": "integer",
    "integer": "integer",
    "bigint": "integer",
    "real": "number",
    "double precision": "number",
    "numeric": "number",
    "boolean": "boolean",
}
# What pgvector makes where nothing is said.
_LISTS = 100
_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "l2": "l2", "ip": "dot"}


@dataclass(frozen=True)
class Catalog:
    """A table as the server describes it; `name` is how messages call it."""

    name: str
    schema: str
    table: str
    id: str
    id_type: str
    by_code_point: bool
    """Whether the server's own order of text ids is that of their code points."""
    collation: str
    vector: str
    kinds: dict[str, Kind]
    dims: dict[str, int]
    halves: bool
    distance: Distance | None
    indexed: tuple[str, ...]
    probes: int
    """How many lists of an ivfflat index a search looks into."""


def read_catalog(
    connection: Any, table: str, id: str | None, vector: str | None, where: str
) -> Catalog:
    """Ask the catalog; `id` and `vector` are found where they are the only candidates."""
    quoted = ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in table.split(".", 1))
    rows = connection.execute(COLUMNS, [quoted]).fetchall()
    if not rows:
        raise BadInput("no such table", where=where, step="name it as #TABLE or #SCHEMA.TABLE")
    # Of our own columns one is there while a migration ends; it is nobody else's business.
    types = {n: kind for _, _, n, kind, *_ in rows if not n.startswith(PREFIX)}
    unique = [row[2] for row in rows if row[7]]
    key = id or next((row[2] for row in rows if row[6]), None)
    if key is None or key not in types:
        raise BadInput(
            "has no primary key of one column" if key is None else f"has no column {key!r}",
            where=where,
            step=f"name the id with --id: its columns are {', '.join(types)}",
        )
    if key not in unique:
        raise BadInput(
            f"ids in {key!r} need not be unique", where=where, step=f"add UNIQUE ({key})"
        )
    dims = {n: _dim(k) for n, k in types.items() if k.startswith(("vector", "halfvec"))}
    column = vector or _only(list(dims), where)
    if not dims.get(column):
        raise BadInput(
            f"{column!r} is no vector column with a dimension",
            where=where,
            step=f"name one with --vector: its columns are {', '.join(types)}",
        )
    indexes = connection.execute(VECTOR_INDEXES, [quoted]).fetchall()
    distance = next((_DISTANCES.get(o.split("_")[1]) for n, o, _ in indexes if n == column), None)
    lists = [made or _LISTS for n, _, made in indexes if n == column]
    return Catalog(
        name=where,
        schema=rows[0][0],
        table=rows[0][1],
        id=key,
        id_type=types[key],
        # A UUID's digits are in the order of its bytes.
        by_code_point=types[key] == "uuid" or any(row[2] == key and row[4] for row in rows),
        collation=next(row[5] for row in rows if row[2] == key),
        vector=column,
        kinds={n: "vector" if n in dims else _KIND_OF.get(k, "text") for n, k in types.items()},
        dims=dims,
        halves=types[column].startswith("halfvec"),
        distance=distance,
        indexed=tuple(sorted({n for n, _, _ in indexes} & types.keys())),
        probes=math.ceil(math.sqrt(max(lists, default=_LISTS))),
    )


def tables_at(url: str) -> list[str]:
    """Tables that have a vector column, each as an address names it: a few more than are told.

    Those that are found without their schema come first, and are named without it.
    """
    pool = Pool(url, safe_name(url), patience=0)
    try:
        found = pool.execute(TABLES_WITH_VECTORS, [PREFIX, MOST_LISTED + 1])
    finally:
        pool.close()
    return [".".join(_in_address(part) for part in row if part is not None) for row in found]


def _in_address(name: str) -> str:
    return re.sub(r"[%#@\x00-\x1f\x7f]", lambda found: quote(found[0], safe=""), name)


def _dim(kind: str) -> int:
    return int(kind[kind.index("(") + 1 : -1]) if "(" in kind else 0


def _only(names: list[str], where: str) -> str:
    if len(names) == 1:
        return names[0]
    raise BadInput(
        f"has {len(names)} vector columns" if names else "has no vector column",
        where=where,
        step="name one with --vector" if names else "is pgvector installed, and this its table?",
    )


@dataclass(frozen=True)
class Added:
    """A column of the table beside."""

    kind: Kind
    dim: int = 0


def added_columns(connection: Any, statements: Statements) -> dict[str, Added]:
    """The columns of the table beside, in the order they were added; none if it is not there."""
    which = [statements.schema, statements.beside, statements.id]
    rows = connection.execute(ADDED_COLUMNS, which).fetchall()
    return {
        name: Added("vector", _dim(kind)) if "vector" in kind else Added(_KIND_OF.get(kind, "text"))
        for name, kind in rows
    }
