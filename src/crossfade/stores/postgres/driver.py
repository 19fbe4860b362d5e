"""psycopg, or the line that installs it."""

from __future__ import annotations

from crossfade.errors import MissingExtra

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise MissingExtra("psycopg", extra="pgvector", need="a PostgreSQL store") from error

__all__ = ["psycopg", "sql"]
