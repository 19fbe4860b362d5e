"""How a Lance table is spoken to, and of: filters, columns, errors as ours, what a step will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import is_vector_type
from crossfade.remote import is_remote, without_keys
from crossfade.stores.contract import Column
from crossfade.stores.names import PREFIX, check_name


def the_id(schema: pa.Schema, where: str) -> str:
    """The column of ids, where it is called as usual."""
    if "id" in schema.names:
        return "id"
    raise BadInput("has no column 'id'", where=where, step=f"name it with --id: {listed(schema)}")


def the_vector(schema: pa.Schema, where: str) -> str:
    """The column of vectors, where there is one only."""
    found = [f.name for f in schema if is_vector_type(f.type) and not f.name.startswith(PREFIX)]
    if len(found) == 1:
        return str(found[0])
    raise BadInput(
        f"has {len(found)} vector columns" if found else "has no vector column",
        where=where,
        step=f"name one with --vector: {listed(schema)}",
    )


def indexed(dataset: Any) -> set[str]:
    """The columns that an index covers."""
    return {name for index in dataset.describe_indices() for name in index.field_names}


def listed(schema: pa.Schema) -> str:
    return f"its columns are {', '.join(schema.names)}"


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def quoted(name: str) -> str:
    return f"`{check_name(name)}`"


def literal(value: Any) -> str:
    """A value inside a filter: numbers as they are, text in quotes with quotes doubled."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return "'" + str(value).replace("'", "''") + "'"


def first_line(error: Exception) -> str:
    return without_keys((str(error).splitlines() or [type(error).__name__])[0])[:300]


class translate_errors:
    """Errors of Lance as ours, with the table's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (OSError, RuntimeError, ValueError, pa.ArrowInvalid)):
            if is_remote(self.name):
                # What it says may hold a key, and is not kept.
                raise StoreError(
                    first_line(error), where=self.name, step="check the keys and the network"
                ) from None
            raise StoreError(
                first_line(error), where=self.name, step="check its files and the disk"
            ) from error


def statements(
    id: str, vector: str, distance: Distance, columns: Sequence[Column], index_from: int
) -> dict[str, list[str]]:
    """By step of a migration; the shared vectors are the first of the added columns."""
    names = ", ".join(c.name for c in columns)
    added = ", ".join(f"{c.name}: {c.arrow}" for c in columns)
    merge = f"merge_insert({id!r}).when_matched_update_all()"
    return {
        "start": [f"add_columns({added})"],
        "forward": [
            f"commit(LanceOperation.Update(...))  -- for each fragment a file with {names}",
            f"{merge}  -- for rows that came or changed meanwhile",
            f"create_index({columns[0].name!r}, 'IVF_HNSW_SQ', metric={distance!r})"
            f"  -- from {index_from:,} rows",
        ],
        "backfill": [
            f"{merge}  -- {names}",
            "fragment.update_columns(...)  -- instead, on a small table without an index",
        ],
        "finish": [
            f"drop_columns({[vector, *(c.name for c in columns[1:])]})",
            f"alter_columns({{'path': {columns[0].name!r}, 'name': {vector!r}}})",
        ],
        "rollback": [f"drop_columns({[c.name for c in columns]})"],
    }
