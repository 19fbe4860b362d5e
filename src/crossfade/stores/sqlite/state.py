"""The small key-value place: a table of the same file, for all tables that are migrated in it."""

from __future__ import annotations

from crossfade.stores.sqlite.connection import Connection, Database, file_of

VALUES = "crossfade_values"
_THERE = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?"


def get_value(connection: Connection, table: str, key: str) -> str | None:
    if connection.execute(_THERE, (VALUES,)).fetchone() is None:
        return None
    found = connection.execute(
        f"SELECT value FROM {VALUES} WHERE of_table = ? AND key = ?",  # noqa: S608
        (table, key),
    ).fetchone()
    return None if found is None else str(found[0])


def put_value(connection: Connection, table: str, key: str, value: str | None) -> None:
    if value is None:
        if connection.execute(_THERE, (VALUES,)).fetchone() is not None:
            connection.execute(
                f"DELETE FROM {VALUES} WHERE of_table = ? AND key = ?",  # noqa: S608
                (table, key),
            )
        return
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {VALUES} (of_table TEXT NOT NULL, key TEXT NOT NULL, "
        "value TEXT NOT NULL, PRIMARY KEY (of_table, key)) WITHOUT ROWID"
    )
    connection.execute(
        f"INSERT OR REPLACE INTO {VALUES} VALUES (?, ?, ?)",  # noqa: S608
        (table, key, value),
    )


def value_in(at: str, table: str, key: str) -> str | None:
    """What is kept for a table, by its address alone."""
    path = file_of(at)
    database = Database(path, f"sqlite:{path}#{table}")
    try:
        with database.reading() as connection:
            return get_value(connection, table, key)
    finally:
        database.close()
