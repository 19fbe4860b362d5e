"""What a migration keeps in PostgreSQL beside the rows: values by name, in one table a schema.

The table goes with its last value.
"""

from __future__ import annotations

from urllib.parse import unquote

from crossfade.stores.address import safe_name
from crossfade.stores.contract import Change
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.driver import psycopg, sql
from crossfade.stores.postgres.statements import NAME_OF_TABLE, NOW, Statement, Statements

# Whose lock it is, which is no value of anybody's.
LOCK = "lock"


def state_exists(connection: Connection, statements: Statements) -> bool:
    """Whether anything is kept in this schema."""
    found = connection.execute(statements.state_exists()).fetchone()
    return bool(found and found[0])


def value_of(pool: Pool, statements: Statements, key: str) -> str | None:
    """The value of that name, if there is one."""

    def look(connection: Connection) -> str | None:
        if not state_exists(connection, statements):
            return None
        try:
            row = connection.execute(statements.read_value(key)).fetchone()
        except psycopg.errors.UndefinedTable:
            # Its last value was taken away in between.
            return None
        return None if row is None else str(row[0])

    return pool.retry(look)


def put_value(connection: Connection, statements: Statements, key: str, value: str) -> None:
    """Put a value under that name, in the transaction that is open if there is one."""
    if not state_exists(connection, statements):
        connection.execute(statements.create_state())
    connection.execute(statements.put_value(key, value))


def keep(pool: Pool, statements: Statements, key: str, value: str | None) -> None:
    """Put a value under that name, or take it away."""

    def change(connection: Connection) -> None:
        if value is None:
            _take_away(connection, statements, key)
        else:
            put_value(connection, statements, key, value)

    def settled(connection: Connection) -> None:
        try:
            change(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.UniqueViolation):
            # At this moment another migration of this schema takes the last value away, or makes
            # the table, which IF NOT EXISTS does not see.
            change(connection)

    pool.retry(settled)


def change_value(pool: Pool, statements: Statements, key: str, change: Change) -> str | None:
    """What `change` makes of a value in its place, with nobody in between."""

    def attempt(connection: Connection) -> tuple[bool, str | None]:
        with connection.transaction():
            row = connection.execute(statements.hold_value(key)).fetchone()
            # After the wait for others, not before it.
            (now,) = connection.execute(NOW).fetchone() or (0.0,)
            before = None if row is None else str(row[0])
            after = change(before, float(now))
            if after == before:
                return True, after
            if after is None:
                connection.execute(statements.delete_value(key))
            elif before is None:
                made = connection.execute(statements.first_value(key, after))
                return made.rowcount == 1, after
            else:
                connection.execute(statements.put_value(key, after))
            return True, after

    def settled(connection: Connection) -> str | None:
        if not state_exists(connection, statements):
            connection.execute(statements.create_state())
        while True:
            done, found = attempt(connection)
            if done:
                return found

    return pool.retry(settled)


def forget(pool: Pool, statements: Statements) -> None:
    """Take away all that is kept of a table, and whose lock it was."""
    pool.retry(lambda connection: _delete(connection, statements, statements.delete_values()))


def _take_away(connection: Connection, statements: Statements, key: str) -> None:
    _delete(connection, statements, statements.delete_value(key))


def _delete(connection: Connection, statements: Statements, delete: Statement) -> None:
    if not state_exists(connection, statements):
        return
    with connection.transaction():
        connection.execute(statements.lock_state())
        connection.execute(delete)
        if connection.execute(statements.no_values_but(LOCK)).fetchone() == (True,):
            connection.execute(statements.drop_state())


def value_at(url: str, table: str, key: str, patience: float = 30.0) -> str | None:
    """The value that is kept for a table, whatever its columns; None if there is no such table."""
    pool = Pool(url, safe_name(f"{url}#{table}"), patience)
    try:
        name = sql.Identifier(*unquote(table).split(".", 1)).as_string(None)
        found = pool.execute(NAME_OF_TABLE, [name])
        if not found:
            return None
        # Its key is not known here, and no statement about values names it.
        schema, name = found[0]
        statements = Statements(schema, name, id="", id_type="bigint", distance="cosine")
        return value_of(pool, statements, key)
    finally:
        pool.close()
