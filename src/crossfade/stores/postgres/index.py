"""Vector indexes, built beside whatever goes on, and built again where a build was cut off."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from crossfade.stores.postgres.connection import Connection, sql
from crossfade.stores.postgres.statements import Said, Statements

# pgvector's own limits for an HNSW index, by the type of the column.
LARGEST_INDEXED = {"vector": 2000, "halfvec": 4000}
# An index with this share of dead entries is built anew: taking them out one by one is slower. To
# build it costs as much as to enter an eighth of the rows; fewer dead ones hardly cost a search.
_DEAD, _FEW = 0.15, 1000
_ROWS = """
    SELECT greatest(reltuples, 0)::bigint, pg_stat_get_dead_tuples(oid) FROM pg_class
    WHERE oid = to_regclass(%s)
"""
_STATE = """
    SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_MEMORY = """
    SELECT pg_size_bytes(current_setting('maintenance_work_mem')),
           pg_size_bytes(current_setting('effective_cache_size')),
           current_setting('max_parallel_maintenance_workers')::int
"""
# A vector in the graph has its links and its place; measured, with room for the levels above.
_LINKS = 700
_MOST_MEMORY = 2 << 30
_WORKERS = 2


def tidy_and_index(connection: Connection, words: Statements, column: str, dim: int) -> None:
    """Index a column of the table beside, and let the planner know what is in there."""
    side = words.say("{side}").as_string(None)
    rows, dead = connection.execute(_ROWS, [side]).fetchone() or (0, 0)
    many_dead = dead > max(_DEAD * rows, _FEW)
    # Dead entries of an index that stays are left in it.
    cleanup = sql.SQL("AUTO" if many_dead else "OFF")
    vacuum = words.say("VACUUM (ANALYZE, INDEX_CLEANUP {cleanup}) {side}", cleanup=cleanup)
    if not many_dead:
        connection.execute(vacuum)
        rows, _ = connection.execute(_ROWS, [side]).fetchone() or (0, 0)
    if dim <= LARGEST_INDEXED["vector"]:
        build_index(
            connection,
            words.schema,
            words.index_name(column),
            lambda name: words.index(name, column),
            rows=rows,
            dim=dim,
            afresh=many_dead,
        )
    if many_dead:
        connection.execute(vacuum)


def build_index(
    connection: Connection,
    schema: str,
    name: str,
    create: Callable[[str], Said],
    *,
    rows: int,
    dim: int,
    afresh: bool = False,
) -> None:
    """Build an index CONCURRENTLY, unless it is there; with `afresh` even then, beside it.

    `create` makes the statement for a name. A build that was killed leaves an index that nobody may
    use: it is dropped and built anew.
    """
    spare = f"{name}_new"
    if afresh and index_is_valid(connection, schema, name):
        if not index_is_valid(connection, schema, spare):
            _create(connection, schema, spare, create(spare), rows, dim)
        drop_index(connection, schema, name)
    if index_is_valid(connection, schema, spare):
        # The one before it is gone, or was never valid.
        drop_index(connection, schema, name)
        both = sql.Identifier(schema, spare), sql.Identifier(name)
        connection.execute(sql.SQL("ALTER INDEX {} RENAME TO {}").format(*both))
    elif not index_is_valid(connection, schema, name):
        drop_index(connection, schema, spare)
        _create(connection, schema, name, create(name), rows, dim)


def index_is_valid(connection: Connection, schema: str, name: str) -> bool:
    """Whether there is an index of that name that was built to its end."""
    found = connection.execute(_STATE, [schema, name]).fetchone()
    return bool(found and found[0])


def drop_index(connection: Connection, schema: str, name: str) -> None:
    """Drop an index CONCURRENTLY, if it is there."""
    connection.execute(
        sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(schema, name))
    )


def _create(
    connection: Connection, schema: str, name: str, create: Said, rows: int, dim: int
) -> None:
    """With memory for the whole graph, and more than one processor.

    The server's own setting is made for b-trees: a graph that does not fit is built on disk,
    several times slower. It is raised to what the graph needs, up to 2 GB or half of what the
    server is said to have for caching.
    """
    found = connection.execute(_MEMORY).fetchone()
    own, cache, workers = found or (0, 0, 0)
    enough = max(own, min(rows * (4 * dim + _LINKS), _MOST_MEMORY, cache // 2))
    connection.execute(f"SET maintenance_work_mem = '{enough >> 10}kB'")
    try:
        for at_once in (max(workers, _WORKERS), 0):
            drop_index(connection, schema, name)
            connection.execute(f"SET max_parallel_maintenance_workers = {at_once}")
            try:
                connection.execute(create)
                return
            except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
                # Workers share memory in a place of its own, which containers keep small.
                if not at_once:
                    raise
    finally:
        if not connection.closed:
            connection.execute("RESET maintenance_work_mem")
            connection.execute("RESET max_parallel_maintenance_workers")
