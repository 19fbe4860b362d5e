"""The statements of each step of a migration, as they are told before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.stores.contract import TOKEN, Column
from crossfade.stores.postgres.connection import sql
from crossfade.stores.postgres.statements import Said, Statements


def statements(words: Statements, vector: str, columns: Sequence[Column]) -> dict[str, list[str]]:
    """By step; the shared vectors are the first of the added columns."""
    names = [c.name for c in columns]
    shared, old = sql.Identifier(names[0]), sql.Identifier(vector)
    given = [words.id, *names]
    written = [words.copy_in([*given, TOKEN]), words.merge(names, token=True)]
    first = [words.copy_in([words.id, TOKEN]), words.copy_in(given, "side")]
    said: dict[str, list[Said]] = {
        "start": words.add(columns),
        "forward": [
            *first,
            words.take_out_changed(),
            words.index(words.beside, names[0]),
        ],
        "backfill": written,
        "finish": [
            words.say(
                "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {shared} vector({dim})",
                shared=shared,
                dim=sql.SQL(str(columns[0].dim)),
            ),
            words.say(
                "UPDATE {table} t SET {shared} = s.{shared} FROM {side} s WHERE s.{id} = t.{id}",
                shared=shared,
            ),
            words.index(words.name, names[0]),
            words.say("ALTER TABLE {table} DROP COLUMN {old}", old=old),
            words.say(
                "ALTER TABLE {table} RENAME COLUMN {shared} TO {old}", shared=shared, old=old
            ),
            words.say("DROP TABLE {side}"),
        ],
        "rollback": [words.say("DROP TABLE IF EXISTS {side}")],
    }
    return {step: [one.as_string(None) for one in all_of] for step, all_of in said.items()}
