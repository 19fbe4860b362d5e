"""Statements that a killed process has left running are over before the next one does anything."""

from __future__ import annotations

import subprocess
import sys
import time

import psycopg
from tests.stores.postgres_store.table import Table, vectors

# Holds the table, and asks for something that takes long.
_HOLDER = """
import sys
from crossfade.stores import open_store
from crossfade.stores.postgres.driver import sql
store = open_store(sys.argv[1])
with store.lock():
    store._pool.execute(sql.SQL("CREATE TABLE left_behind AS SELECT 1 FROM pg_sleep(3600)"))
"""
_RUNNING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE TABLE left_behind%'"


def test_what_a_killed_process_left_running_is_ended_when_the_lock_is_taken():
    table = Table()
    table.create(vectors(5))
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, table.address])
    while not table.run(_RUNNING)[0][0]:
        assert holder.poll() is None
        time.sleep(0.02)
    holder.kill()
    holder.wait()
    store = table.open()
    with store.lock():
        assert table.run(_RUNNING)[0][0] == 0
        assert table.run("SELECT to_regclass('left_behind')")[0][0] is None
    store.close()


def test_connections_of_a_store_that_is_not_held_any_more_are_left_alone():
    table = Table()
    table.create(vectors(5))
    searching, other = table.open(), table.open()
    with searching.lock():
        assert searching.describe().rows == 5
    count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    with psycopg.connect(table.url) as connection:
        assert connection.execute(count).fetchone() == (0,)
    with other.lock():
        assert searching.describe().rows == 5
    searching.close()
    other.close()
