"""What PostgreSQL's catalog says of a table: columns, key, vectors and their indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossfade.errors import BadInput
from crossfade.stores.contract import Metric
from crossfade.stores.pgcopy import Kind

# How each kind travels in binary.
KINDS: dict[Kind, str] = {
    "integer": "bigint",
    "text": "text",
    "vector": "vector",
    "number": "double precision",
    "boolean": "boolean",
}
_KIND_OF: dict[str, Kind] = {
    "smallint": "integer",
    "integer": "integer",
    "bigint": "integer",
    "real": "number",
    "double precision": "number",
    "numeric": "number",
    "boolean": "boolean",
}
_METRICS: dict[str, Metric] = {"cosine": "cosine", "l2": "l2", "ip": "dot"}
_COLUMNS = """
    SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
                   AND i.indnatts = 1 AND a.attnum = ANY(i.indkey)),
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique
                   AND i.indnatts = 1 AND i.indpred IS NULL AND a.attnum = ANY(i.indkey))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.oid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES = """
    SELECT ic.relname, a.attname, o.opcname FROM pg_index i
    JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_am m ON m.oid = ic.relam
    JOIN pg_opclass o ON o.oid = i.indclass[0]
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = to_regclass(%s) AND m.amname IN ('hnsw', 'ivfflat')
"""


@dataclass(frozen=True)
class Catalog:
    """A table as the server describes it."""

    schema: str
    table: str
    id: str
    id_type: str
    vector: str
    kinds: dict[str, Kind]
    dims: dict[str, int]
    halves: bool
    metric: Metric | None
    indexed: tuple[str, ...]
    vector_indexes: tuple[str, ...]


def read_catalog(
    connection: Any, table: str, id: str | None, vector: str | None, where: str
) -> Catalog:
    """Ask the catalog; `id` and `vector` are found where they are the only candidates."""
    quoted = ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in table.split(".", 1))
    rows = connection.execute(_COLUMNS, [quoted]).fetchall()
    if not rows:
        raise BadInput("no such table", where=where, step="name it as #TABLE or #SCHEMA.TABLE")
    types = {name: kind for _, _, name, kind, _, _ in rows}
    unique = [name for *_, name, _, _, is_unique in rows if is_unique]
    key = id or next((name for *_, name, _, primary, _ in rows if primary), None)
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
    indexes = connection.execute(_INDEXES, [quoted]).fetchall()
    metric = next((_METRICS.get(o.split("_")[1]) for _, n, o in indexes if n == column), None)
    return Catalog(
        schema=rows[0][0],
        table=rows[0][1],
        id=key,
        id_type=types[key],
        vector=column,
        kinds={n: "vector" if n in dims else _KIND_OF.get(k, "text") for n, k in types.items()},
        dims=dims,
        halves=types[column].startswith("halfvec"),
        metric=metric,
        indexed=tuple(sorted({n for _, n, _ in indexes})),
        vector_indexes=tuple(i for i, _, _ in indexes),
    )


def _dim(kind: str) -> int:
    return int(kind[kind.index("(") + 1 : -1]) if "(" in kind else 0


def _only(names: list[str], where: str) -> str:
    names = [name for name in names if not name.startswith("crossfade_")]
    if len(names) == 1:
        return names[0]
    raise BadInput(
        f"has {len(names)} vector columns" if names else "has no vector column",
        where=where,
        step="name one with --vector" if names else "is pgvector installed, and this its table?",
    )


def columns_of(connection: Any, schema: str, table: str) -> list[Any]:
    """Names and types of a table's columns, in their order; none if there is no such table."""
    query = """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
    """
    rows: list[Any] = connection.execute(query, [schema, table]).fetchall()
    return rows


def index_state(connection: Any, schema: str, name: str) -> str:
    """`ready`, `broken` (its build was cut off) or `missing`."""
    query = """
        SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
    """
    found = connection.execute(query, [schema, name]).fetchone()
    return "missing" if found is None else "ready" if found[0] else "broken"
