"""The statements of each step of a migration, as they are told before it starts.

They are made by what makes those that are executed; what is not known yet is `…`. Questions and
settings of a session are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.stores.contract import TOKEN, Column
from crossfade.stores.postgres.copy import Kind
from crossfade.stores.postgres.dependants import Dependants
from crossfade.stores.postgres.index import LARGEST_INDEXED, spare
from crossfade.stores.postgres.statements import (
    UNKNOWN,
    Index,
    NewColumn,
    Statement,
    Statements,
    drop_index,
)

_KINDS: dict[str, Kind] = {"vector": "vector", "text": "text", "integer": "integer"}


def outline(
    statements: Statements, vector: str, columns: Sequence[Column], found: Dependants
) -> dict[str, list[str]]:
    """By step; the shared vectors are the first of the added columns."""
    steps = {
        "start": [
            statements.create_state(),
            statements.put_value(UNKNOWN, UNKNOWN),
            *statements.add_columns(columns),
        ],
        "forward": _forward(statements, columns),
        "backfill": _backfill(statements, columns),
        "finish": _finish(statements, vector, columns, found),
        "rollback": [
            statements.lock_calmly(),
            statements.lock_table(),
            statements.drop_new_column(columns[0].name),
            statements.drop_side(),
            statements.lock_state(),
            statements.delete_value(UNKNOWN),
            statements.put_value(UNKNOWN, UNKNOWN),
        ],
    }
    return {step: [one.as_string(None) for one in each] for step, each in steps.items()}


def _forward(statements: Statements, columns: Sequence[Column]) -> list[Statement]:
    names, shared = [c.name for c in columns], columns[0]
    out = [
        _staging(statements, columns),
        statements.copy_in([statements.id, TOKEN]),
        statements.copy_in([statements.id, *names], "side"),
        statements.take_out_changed(),
        statements.empty_staging(),
        statements.create_staging({}),
        statements.take_out_unchanged(),
        statements.delete_orphans(),
        statements.vacuum_side(indexes=False),
    ]
    if shared.dim <= LARGEST_INDEXED["vector"]:
        name = statements.index_name(shared.name)
        create = statements.create_index(name, shared.name)
        out += _build(statements.schema, name, create)
    return out


def _build(schema: str, name: str, create: Statement) -> list[Statement]:
    """What a build that was cut off has left goes first."""
    return [*(drop_index(schema, one) for one in (spare(name), name)), create]


def _backfill(statements: Statements, columns: Sequence[Column]) -> list[Statement]:
    names = [c.name for c in columns]
    span = (UNKNOWN, UNKNOWN) if statements.integer_ids else None
    return [
        _staging(statements, columns),
        statements.copy_in([statements.id, *names, TOKEN]),
        statements.merge(names, token=True, span=span),
    ]


def _staging(statements: Statements, columns: Sequence[Column]) -> Statement:
    return statements.create_staging({c.name: _KINDS[c.kind] for c in columns})


def _finish(
    statements: Statements, vector: str, columns: Sequence[Column], found: Dependants
) -> list[Statement]:
    shared = columns[0]
    new = NewColumn(shared.name, vector, shared.dim, found.column)
    checked = [check.name for check in found.checks if check.valid]
    return [
        statements.lock_calmly(),
        statements.lock_table(),
        *statements.add_new_column(new),
        statements.lock_free_rows(UNKNOWN),
        statements.bring_over(new, UNKNOWN),
        *(one for index in found.indexes for one in _stand_in(statements, new, index)),
        statements.lock_side(),
        *(one.lock for one in found.remade if one.lock is not None),
        *statements.forget_indexes(new, found.indexes),
        *statements.exchange(new, indexes=found.indexes, checks=found.checks, remade=found.remade),
        *statements.validate(checked, not_null=new.like.not_null),
        *(statements.set_not_null(vector) if new.like.not_null else []),
        statements.lock_state(),
        statements.delete_value(UNKNOWN),
    ]


def _stand_in(statements: Statements, new: NewColumn, index: Index) -> list[Statement]:
    name = index.stand_in(statements, new.name)
    return _build(statements.schema, name, index.create(name, statements.table, new.name))
