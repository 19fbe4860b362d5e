"""What a killed process has left: statements that run are over before the next one does anything,
and a table that it had just begun to make goes with a rollback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psycopg
import pytest
from tests.stores.postgres_store.table import NAMES, Table, vectors

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


_BEGINNER = """
import os, signal, sys
from tests.stores.postgres_store.table import ADDED
from crossfade.stores import open_store
store = open_store(sys.argv[1])
plain, left = store._pool.execute, int(sys.argv[2])
def counted(statement, values=()):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return plain(statement, values)
with store.lock():
    store._pool.execute = counted
    store.add_columns(ADDED)
"""


@pytest.mark.parametrize("statements", [1, 2])
def test_a_table_that_was_begun_and_has_not_all_its_columns_is_dropped(statements):
    table = Table()
    table.create(vectors(5))
    killed = [sys.executable, "-c", _BEGINNER, table.address, str(statements)]
    assert subprocess.run(killed).returncode == -signal.SIGKILL
    beside = "SELECT count(*) FROM pg_class WHERE relname = 'crossfade_items'"
    assert table.run(beside) == [(1,)]
    store = table.open()
    with store.lock():
        assert len(store.describe().added) == statements - 1
        store.drop_columns(NAMES)
        store.drop_columns(NAMES)
    assert table.run(beside) == [(0,)]
    store.close()


def test_connections_of_a_store_that_is_not_held_any_more_are_left_alone():
    table = Table()
    table.create(vectors(5))
    searching, other = table.open(), table.open()
    with searching.lock():
        assert searching.describe().rows == 5
    count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    with psycopg.connect(table.url, autocommit=True) as connection:
        # A server takes a moment to end what was closed.
        until = time.monotonic() + 20
        while connection.execute(count).fetchone() != (0,):
            assert time.monotonic() < until
            time.sleep(0.02)
    with other.lock():
        assert searching.describe().rows == 5
    searching.close()
    other.close()
