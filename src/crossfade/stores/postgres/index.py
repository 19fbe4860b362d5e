"""Vector indexes, built beside whatever goes on, and built again where a build was cut off."""

from __future__ import annotations

from collections.abc import Callable

from crossfade.stores.postgres.connection import Connection
from crossfade.stores.postgres.driver import psycopg
from crossfade.stores.postgres.statements import (
    INDEX_IS_VALID,
    MEMORY_AND_WORKERS,
    ROWS_AND_DEAD,
    Statement,
    Statements,
    drop_index,
    rename_index,
    set_option,
)

# pgvector's own limits for an HNSW index, by the type of the column.
LARGEST_INDEXED = {"vector": 2000, "halfvec": 4000}
# An index with this share of dead entries is built anew: taking them out one by one is slower. To
# build it costs as much as to enter an eighth of the rows; fewer dead ones hardly cost a search.
_DEAD, _FEW = 0.15, 1000
# A vector in the graph has its links and its place; measured, with room for the levels above.
_LINKS = 700
_MOST_MEMORY = 2 << 30
_WORKERS = 2


def tidy_and_index(connection: Connection, statements: Statements, column: str, dim: int) -> None:
    """Index a column of the table beside, and let the planner know what is in there."""
    side = statements.side_name
    rows, dead = connection.execute(ROWS_AND_DEAD, [side]).fetchone() or (0, 0)
    many_dead = dead > max(_DEAD * rows, _FEW)
    # Dead entries of an index that stays are left in it.
    vacuum = statements.vacuum_side(indexes=many_dead)
    if not many_dead:
        connection.execute(vacuum)
        rows, _ = connection.execute(ROWS_AND_DEAD, [side]).fetchone() or (0, 0)
    if dim <= LARGEST_INDEXED["vector"]:
        build_index(
            connection,
            statements.schema,
            statements.index_name(column),
            lambda name: statements.create_index(name, column),
            rows=rows,
            dim=dim,
            afresh=many_dead,
        )
    if many_dead:
        connection.execute(vacuum)


def spare(name: str) -> str:
    """What an index is called that is built to take the place of another."""
    return f"{name}_new"


def build_index(
    connection: Connection,
    schema: str,
    name: str,
    create: Callable[[str], Statement],
    *,
    rows: int,
    dim: int,
    afresh: bool = False,
) -> None:
    """Build an index CONCURRENTLY, unless it is there; with `afresh` even then, beside it.

    `create` makes the statement for a name. A build that was killed leaves an index that nobody may
    use: it is dropped and built anew.
    """
    if afresh and index_is_valid(connection, schema, name):
        if not index_is_valid(connection, schema, spare(name)):
            _create(connection, schema, spare(name), create(spare(name)), rows, dim)
        connection.execute(drop_index(schema, name))
    if index_is_valid(connection, schema, spare(name)):
        # The one before it is gone, or was never valid.
        connection.execute(drop_index(schema, name))
        connection.execute(rename_index(schema, spare(name), name))
    elif not index_is_valid(connection, schema, name):
        connection.execute(drop_index(schema, spare(name)))
        _create(connection, schema, name, create(name), rows, dim)


def index_is_valid(connection: Connection, schema: str, name: str) -> bool:
    """Whether there is an index of that name that was built to its end."""
    found = connection.execute(INDEX_IS_VALID, [schema, name]).fetchone()
    return bool(found and found[0])


def _create(
    connection: Connection, schema: str, name: str, create: Statement, rows: int, dim: int
) -> None:
    """With memory for the whole graph, and more than one processor.

    The server's own setting is made for b-trees: a graph that does not fit is built on disk,
    several times slower. It is raised to what the graph needs, up to 2 GB or half of what the
    server is said to have for caching.
    """
    found = connection.execute(MEMORY_AND_WORKERS).fetchone()
    own, cache, workers = found or (0, 0, 0)
    enough = max(own, min(rows * (4 * dim + _LINKS), _MOST_MEMORY, cache // 2))
    connection.execute(set_option("maintenance_work_mem", f"{enough >> 10}kB"))
    try:
        for at_once in (max(workers, _WORKERS), 0):
            connection.execute(drop_index(schema, name))
            connection.execute(set_option("max_parallel_maintenance_workers", str(at_once)))
            try:
                connection.execute(create)
                return
            except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
                # Workers share memory in a place of its own, which containers keep small.
                if not at_once:
                    raise
    finally:
        if not connection.closed:
            connection.execute(set_option("maintenance_work_mem", None))
            connection.execute(set_option("max_parallel_maintenance_workers", None))
