"""How pgvector's shared vectors become the application's only ones.

The vectors are brought over in batches beside the old ones and indexed there, while searches go on
in the table beside. Only the last act, out with the old column and in with the new name, takes the
application's table for itself, for as long as a look at the rows takes; it is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from crossfade.errors import StoreError
from crossfade.stores.contract import ROWS
from crossfade.stores.pgsession import LOCK_TIMEOUT, Connection, Session, sql
from crossfade.stores.pgstatements import Statements


def promote(
    session: Session,
    words: Statements,
    column: str,
    vector: str,
    dim: int,
    old_indexes: tuple[str, ...],
    index: Callable[[str], None],
) -> None:
    """Bring `column` over, index it with `index`, and let it take the place of `vector`."""
    name, place = sql.Identifier(column), sql.Identifier(vector)
    add = "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} vector({dim})"
    session.run(words.say(add, name=name, dim=sql.SQL(str(dim))), lock=True)
    ours = words.index_name(words.name, column)
    for old in old_indexes:
        # With its index in place every row brought over would be entered there once more.
        if old != ours:
            session.run(words.drop_index(old))
    bring = words.say(
        "UPDATE {table} t SET {name} = s.{name} FROM {side} s WHERE s.{id} = t.{id} AND "
        "t.{id} IN (SELECT a.{id} FROM {table} a JOIN {side} b USING ({id}) "
        "WHERE a.{name} IS DISTINCT FROM b.{name} LIMIT {rows})",
        name=name,
        rows=sql.Literal(ROWS),
    )

    def switch(connection: Connection) -> bool:
        """False if rows were written since they were brought over."""
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            connection.execute(words.say("LOCK TABLE {table}"))
            look = (
                "SELECT bool_or(t.{name} IS DISTINCT FROM s.{name}), "
                # Of a null or a zero vector nothing can be made; such rows are kept without one.
                "bool_or(s.{id} IS NULL AND vector_norm(t.{place}::vector) > 0) "
                "FROM {table} t LEFT JOIN {side} s USING ({id})"
            )
            found = connection.execute(words.say(look, name=name, place=place)).fetchone()
            behind, without = found or (False, False)
            if without:
                raise StoreError(
                    "rows came that have no shared vector yet",
                    where=session.name,
                    step="end what writes old vectors, then finish again",
                )
            if behind:
                return False
            for act in (
                "ALTER TABLE {table} DROP COLUMN {place}",
                "ALTER TABLE {table} RENAME COLUMN {name} TO {place}",
                "DROP TABLE {side}",
            ):
                connection.execute(words.say(act, name=name, place=place))
        return True

    while True:
        if session.doing(lambda c: c.execute(bring).rowcount):
            continue
        index(column)
        if session.doing(switch):
            return
