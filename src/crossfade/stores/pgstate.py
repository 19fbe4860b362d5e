"""What a migration keeps in PostgreSQL beside the rows: values by name, in one table a schema."""

from __future__ import annotations

from urllib.parse import unquote

from crossfade.stores.address import safe_name
from crossfade.stores.pgsession import Session, sql
from crossfade.stores.pgstatements import Statements

_TABLE = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass({})
"""


def value_of(session: Session, words: Statements, key: str) -> str | None:
    """The value of that name, if there is one."""
    there = sql.SQL("SELECT to_regclass({}) IS NOT NULL").format(
        sql.Literal(words.say("{state}").as_string(None))
    )
    if not session.run(there)[0][0]:
        return None
    ask = "SELECT value FROM {state} WHERE store = {store} AND key = {key}"
    rows = session.run(words.say(ask, key=sql.Literal(key)))
    return str(rows[0][0]) if rows else None


def keep(session: Session, words: Statements, key: str, value: str | None) -> None:
    """Put a value under that name, or take it away."""
    make = (
        "CREATE TABLE IF NOT EXISTS {state} "
        "(store text, key text, value text NOT NULL, PRIMARY KEY (store, key))"
    )
    session.run(words.say(make))
    if value is None:
        forget = "DELETE FROM {state} WHERE store = {store} AND key = {key}"
        session.run(words.say(forget, key=sql.Literal(key)))
        return
    put = (
        "INSERT INTO {state} VALUES ({store}, {key}, {value}) "
        "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value"
    )
    session.run(words.say(put, key=sql.Literal(key), value=sql.Literal(value)))


def value_at(url: str, table: str, key: str, patience: float = 30.0) -> str | None:
    """The value that is kept for a table, whatever its columns; None if there is no such table."""
    session = Session(url, safe_name(f"{url}#{table}"), patience)
    try:
        name = sql.Identifier(*unquote(table).split(".", 1)).as_string(None)
        found = session.run(sql.SQL(_TABLE).format(sql.Literal(name)))
        if not found:
            return None
        # Its key is not known here, and no statement about values names it.
        schema, name = found[0]
        words = Statements(schema, name, id="", id_type="bigint", metric="cosine")
        return value_of(session, words, key)
    finally:
        session.close()
