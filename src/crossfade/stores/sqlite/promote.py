"""`promote` in one transaction: new vectors in the place of the old ones, or nothing at all.

First every row is shown to `work` in batches, while others write. Then the file is taken. If nobody
has committed since, all is up to date, else every row is shown once more; and the vectors change
places. In a BLOB column that is one UPDATE. A `vec0` table cannot change its dimension nor be
renamed: its other columns are put aside, it is dropped and made again by its own declaration.

Readers see the table as it was until the commit; a kill before that leaves it so.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.stores.contract import Column
from crossfade.stores.sqlite.rows import Seen
from crossfade.stores.sqlite.schema import Schema, quoted, update_triggers
from crossfade.stores.sqlite.side import Side

_ASIDE = "temp.crossfade_aside"


def switch(seen: Seen, column: Column, drop: Sequence[str]) -> None:
    """The statements of the switch, in a transaction that somebody else commits."""
    schema, connection = seen.schema, seen.connection
    if schema.vec0 is None:
        # What they look at is not touched; each row would set them off all the same.
        triggers = update_triggers(schema, connection)
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {quoted(name)}")
        connection.execute(replacing_blobs(schema, seen.side, column))
        for _, sql in triggers:
            connection.execute(sql)
    else:
        for statement in rebuilding(schema, seen.side, column):
            connection.execute(statement)
    seen.side.drop(connection, [column.name, *drop])


def replacing_blobs(schema: Schema, side: Side, column: Column) -> str:
    """One UPDATE of all rows."""
    beside = side.table_of(column.name)
    found = (
        f"(SELECT {side.named(column.name)} FROM {beside} "  # noqa: S608
        f"WHERE {beside}.id = {quoted(schema.table)}.{quoted(schema.id)})"
    )
    value = f"coalesce({found}, zeroblob({4 * column.dim}))" if schema.needs_vector else found
    return f"UPDATE {quoted(schema.table)} SET {quoted(schema.vector)} = {value}"  # noqa: S608


def rebuilding(schema: Schema, side: Side, column: Column) -> list[str]:
    """The table made again with vectors of another dimension, and all else as it was."""
    if schema.vec0 is None:
        raise TypeError("an ordinary table is not rebuilt")
    table, vector, beside = quoted(schema.table), quoted(schema.vector), side.table_of(column.name)
    others = [name for name in schema.names if name != schema.vector]
    names = ", ".join(map(quoted, others))
    kept = ", ".join(f"{quoted(name)} AS c{n}" for n, name in enumerate(others))
    back = ", ".join(f"a.c{n}" for n in range(len(others)))
    key = f"a.c{others.index(schema.id)}"
    made = f"coalesce({side.named(column.name)}, zeroblob({4 * column.dim}))"
    return [
        f"CREATE TABLE {_ASIDE} AS SELECT {kept} FROM {table}",  # noqa: S608
        f"DROP TABLE {table}",
        f"CREATE VIRTUAL TABLE {table} USING vec0("
        f"{schema.vec0.with_dim(schema.vector, column.dim)})",
        f"INSERT INTO {table} ({names}, {vector}) SELECT {back}, {made} "  # noqa: S608
        f"FROM {_ASIDE} AS a LEFT JOIN {beside} ON {beside}.id = {key} ORDER BY a.rowid",
        f"DROP TABLE {_ASIDE}",
    ]
