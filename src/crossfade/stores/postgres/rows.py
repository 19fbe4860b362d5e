"""Rows out of PostgreSQL, as Arrow batches: by id, or all of them in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.stores.contract import TOKEN, Id
from crossfade.stores.postgres.catalog import Added, Catalog, added_columns
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.copy import Kind, empty, scattered
from crossfade.stores.postgres.statements import Statement, Statements, gathered
from crossfade.stores.rows import one_batch

_LARGEST_BATCH = 256 << 20
# What the server puts together for one column at a time: twice as fast as four times as much.
_LARGEST_VALUE = 8 << 20


def stream(
    pool: Pool,
    statements: Statements,
    catalog: Catalog,
    columns: Sequence[str],
    *,
    after: Id | None,
    size: int,
    missing: bool,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `size` rows, each as the rows are when it is read."""
    added = pool.retry(lambda c: added_columns(c, statements))
    dims = catalog.dims | {name: one.dim for name, one in added.items()}
    width = 100 + sum(4 * dims.get(name, 0) for name in columns)
    size = min(size, max(1, _LARGEST_BATCH // width))
    step = -(-size // -(-size // max(1, _LARGEST_VALUE // width)))
    pieces: list[pa.RecordBatch] = []
    while True:
        room = size - sum(map(len, pieces))
        now = min(step, room)
        due = statements.missing(after, now) if missing else None
        tail = statements.in_order() if missing else statements.after(after, now)
        read = partial(
            gather,
            statements=statements,
            catalog=catalog,
            columns=columns,
            tail=tail,
            last=after,
            in_order=True,
            due=due,
        )
        piece = pool.retry(read)
        pieces.append(piece)
        rows = size - room + len(piece)
        if rows and (not len(piece) or rows >= size):
            yield one_batch(pa.Table.from_batches(pieces))
            pieces = []
        if not len(piece):
            return
        after = piece[statements.id][-1].as_py()


def gather(
    connection: Connection,
    statements: Statements,
    catalog: Catalog,
    columns: Sequence[str],
    tail: Statement,
    *,
    last: Id | None = None,
    in_order: bool = False,
    due: Statement | None = None,
) -> pa.RecordBatch:
    """The rows that `tail` names, as (id, *columns, TOKEN).

    `in_order` are rows after `last`; `due` is a query of ids that have nothing beside.
    """
    added = added_columns(connection, statements)
    wanted = [name for name in dict.fromkeys(columns) if name != statements.id]
    for name in wanted:
        if name not in added and name not in catalog.kinds:
            raise BadInput(f"has no column {name!r}", where=catalog.name)
    aside = [name for name in wanted if name in added]
    kinds = {name: (_kind(name, added, catalog), name in added) for name in wanted}
    if aside and (due is not None or (in_order and _none_beside(connection, statements, last))):
        # Nothing is there to be joined, the first time around.
        kinds = {name: kind for name, kind in kinds.items() if name not in aside}
    statement = statements.gather(kinds, tail, last=last if in_order else None, due=due)
    found = connection.execute(statement, binary=True).fetchone()
    travel: list[Kind] = [statements.id_kind, *(kind for kind, _ in kinds.values()), "integer"]
    values = iter(found or ())
    dims = catalog.dims | {name: added[name].dim for name in aside}
    arrays = {}
    for name, kind in zip([statements.id, *kinds, TOKEN], travel, strict=True):
        parts = [next(values) for _ in gathered("", kind)]
        arrays[name] = scattered(parts, kind, dims.get(name, 0))
    rows = len(arrays[statements.id])
    for name in aside:
        arrays.setdefault(name, empty(rows, added[name].kind, dims.get(name, 0)))
    return pa.RecordBatch.from_pydict({n: arrays[n] for n in [statements.id, *wanted, TOKEN]})


def _kind(name: str, added: dict[str, Added], catalog: Catalog) -> Kind:
    return added[name].kind if name in added else catalog.kinds[name]


def _none_beside(connection: Connection, statements: Statements, last: Id | None) -> bool:
    if not statements.native:
        return False
    return connection.execute(statements.first_beside(last)).fetchone() is None
