"""What a migration keeps in PostgreSQL beside the rows: values by name, in one table a schema.

The table goes with its last value.
"""

from __future__ import annotations

from urllib.parse import unquote

import psycopg

from crossfade.stores.address import safe_name
from crossfade.stores.postgres.connection import Connection, Pool, sql
from crossfade.stores.postgres.statements import Statements

# Whose lock it is, which is no value of anybody's.
LOCK = "lock"
_TABLE = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass({})
"""


def state_exists(connection: Connection, words: Statements) -> bool:
    """Whether anything is kept in this schema."""
    there = sql.SQL("SELECT to_regclass({}) IS NOT NULL").format(
        sql.Literal(words.say("{state}").as_string(None))
    )
    found = connection.execute(there).fetchone()
    return bool(found and found[0])


def value_of(pool: Pool, words: Statements, key: str) -> str | None:
    """The value of that name, if there is one."""
    ask = words.say(
        "SELECT value FROM {state} WHERE store = {store} AND key = {key}", key=sql.Literal(key)
    )

    def look(connection: Connection) -> str | None:
        if not state_exists(connection, words):
            return None
        try:
            row = connection.execute(ask).fetchone()
        except psycopg.errors.UndefinedTable:
            # Its last value was taken away in between.
            return None
        return None if row is None else str(row[0])

    return pool.retry(look)


def put_value(connection: Connection, words: Statements, key: str, value: str) -> None:
    """Put a value under that name, in the transaction that is open if there is one."""
    make = (
        "CREATE TABLE IF NOT EXISTS {state} "
        "(store text, key text, value text NOT NULL, PRIMARY KEY (store, key))"
    )
    put = (
        "INSERT INTO {state} VALUES ({store}, {key}, {value}) "
        "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value"
    )
    if not state_exists(connection, words):
        connection.execute(words.say(make))
    connection.execute(words.say(put, key=sql.Literal(key), value=sql.Literal(value)))


def keep(pool: Pool, words: Statements, key: str, value: str | None) -> None:
    """Put a value under that name, or take it away."""

    def change(connection: Connection) -> None:
        if value is None:
            _take_away(connection, words, key)
        else:
            put_value(connection, words, key, value)

    def settled(connection: Connection) -> None:
        try:
            change(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.UniqueViolation):
            # At this moment another migration of this schema takes the last value away, or makes
            # the table, which IF NOT EXISTS does not see.
            change(connection)

    pool.retry(settled)


def _take_away(connection: Connection, words: Statements, key: str) -> None:
    forget = "DELETE FROM {state} WHERE store = {store} AND key = {key}"
    last = "SELECT NOT EXISTS (SELECT FROM {state} WHERE key <> {lock})"
    if not state_exists(connection, words):
        return
    with connection.transaction():
        connection.execute(words.say("LOCK TABLE {state}"))
        connection.execute(words.say(forget, key=sql.Literal(key)))
        if connection.execute(words.say(last, lock=sql.Literal(LOCK))).fetchone() == (True,):
            connection.execute(words.say("DROP TABLE {state}"))


def value_at(url: str, table: str, key: str, patience: float = 30.0) -> str | None:
    """The value that is kept for a table, whatever its columns; None if there is no such table."""
    pool = Pool(url, safe_name(f"{url}#{table}"), patience)
    try:
        name = sql.Identifier(*unquote(table).split(".", 1)).as_string(None)
        found = pool.execute(sql.SQL(_TABLE).format(sql.Literal(name)))
        if not found:
            return None
        # Its key is not known here, and no statement about values names it.
        schema, name = found[0]
        words = Statements(schema, name, id="", id_type="bigint", metric="cosine")
        return value_of(pool, words, key)
    finally:
        pool.close()
