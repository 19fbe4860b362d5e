"""One store in many threads, and in a forked process, answers as it does alone."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.stores.postgres_store.table import ADDED, Table, lift, vectors

from crossfade.errors import StoreError
from crossfade.stores import open_store

# Of other stores that the same process has tested: nobody uses them in the child.
FORK = "ignore:lance is not fork-safe"

ROWS, THREADS = 4000, 16
COUNT = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE application_name = 'crossfade' AND datname = current_database()"
)


@pytest.fixture(scope="module")
def table():
    app = Table()
    app.create(vectors(ROWS), kinds=np.arange(ROWS) % 7)
    app.index(how="hnsw (vector vector_cosine_ops) WITH (m = 4, ef_construction = 8)")
    return app


def answers(store, queries, asked) -> list:
    found = []
    for i, (k, kinds) in asked:
        where = None if kinds is None else {"kind": kinds}
        hits = store.search(queries[i], column="vector", k=k, where=where, columns=["kind"])
        found.append([(hit.id, hit.score, hit.values["kind"]) for hit in hits])
    return found


def both(store, queries, asked) -> list:
    found = []
    for i in asked:
        told = store.search_both(
            queries[i], queries[i + 1], None, column="", state="", k=20, columns=["kind"]
        )
        found.append([(hit.id, hit.values["kind"]) for hit in told.hits])
    return found


def test_both_models_in_many_threads_take_no_more_connections_than_searches_do(table):
    store, queries = table.open(), vectors(41, seed=6)
    alone = both(store, queries, range(40))
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(lambda i: both(store, queries, [i])[0], [*range(40)] * 4))
    assert together == alone * 4
    assert table.run(COUNT)[0][0] <= 8
    store.close()


def test_where_the_server_has_one_connection_left_one_search_follows_the_other(table):
    store, queries = table.open(), vectors(41, seed=6)
    wanted = both(store, queries, range(3))
    store.close()
    table.run("CREATE ROLE modest LOGIN CONNECTION LIMIT 1")
    table.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO modest")
    try:
        modest = open_store(table.address.replace("postgres:@", "modest:@"))
        assert both(modest, queries, range(3)) == wanted
        count = COUNT + " AND usename = 'modest'"
        assert table.run(count)[0][0] == 1
        modest.close()
    finally:
        table.run("DROP OWNED BY modest")
        table.run("DROP ROLE modest")


def test_sixteen_threads_get_what_one_gets(table):
    store, queries = table.open(), vectors(40, seed=5)
    rng = np.random.default_rng(1)
    asked = [
        [
            (i, (int(rng.choice([1, 10, 60, 300])), [None, 3, [1, 2, 5]][rng.integers(3)]))
            for i in rng.permutation(40)
        ]
        for _ in range(THREADS)
    ]
    alone = [answers(store, queries, each) for each in asked]
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(lambda each: answers(store, queries, each), asked))
    assert together == alone
    # There are never more connections than the pool's.
    assert table.run(COUNT)[0][0] <= 8
    store.close()
    # A server notices a little later that a connection has gone.
    while table.run(COUNT)[0][0]:
        time.sleep(0.05)


@pytest.mark.filterwarnings(FORK)
def test_a_forked_child_has_connections_of_its_own(table):
    store, queries = table.open(), vectors(30, seed=6)
    asked = [(i, (10, None)) for i in range(30)]
    alone = answers(store, queries, asked)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if answers(store, queries, asked) == alone:
                os.write(write, b"same")
                store.close()
                status = 0
        finally:
            os._exit(status)
    # At the same time, on what would be the same socket.
    together = answers(store, queries, asked)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 10) == b"same"
    assert together == alone == answers(store, queries, asked)
    store.close()


@pytest.mark.filterwarnings(FORK)
def test_a_forked_child_does_not_hold_its_parents_lock(table):
    """The parent dies with the lock; its child lives on, and the lock is free all the same."""
    ready, go = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        store = table.open()
        with store.lock():
            if os.fork() == 0:
                os.write(ready[1], b"x")
                os.read(go[0], 1)
                os._exit(0)
            os.read(ready[0], 1)
            os._exit(0)
    os.waitpid(parent, 0)
    store = table.open()
    try:
        with store.lock():
            pass
    finally:
        os.write(go[1], b"x")
        store.close()


def end_connections(table, where: str) -> int:
    ended = table.run(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "  # noqa: S608
        f"WHERE pid <> pg_backend_pid() AND datname = current_database() AND {where}"
    )
    return ended[0][0]


HOLDS = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"


def test_a_lock_that_was_lost_and_that_nobody_took_is_taken_again(table):
    store = table.open()
    store.put("migration", "x")
    with store.lock():
        assert end_connections(table, HOLDS) == 1
        assert store.get("migration") == "x"
        other = table.open()
        with pytest.raises(StoreError, match="another process"), other.lock():
            pass
        other.close()
    store.put("migration", None)
    store.close()


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_what_the_server_gave_up_for_another_is_done_again(table, state):
    """Serialization failures, deadlocks, and locks that were not to be had in time."""
    store, times = table.open(), 0

    def work(connection):
        nonlocal times
        times += 1
        if times < 3:
            connection.execute(f"DO $$ BEGIN RAISE 'in the way' USING ERRCODE = '{state}'; END $$")
        return connection.execute("SELECT 7").fetchone()[0]

    assert store._pool.retry(work) == 7
    assert times == 3
    store.close()


def test_a_lock_that_another_took_meanwhile_is_noticed_by_the_next_statement(table):
    store, other = table.open(), table.open()
    store.put("migration", "x")
    with pytest.raises(StoreError, match="lost its lock"), store.lock():
        assert end_connections(table, HOLDS) == 1
        with other.lock():
            other.put("migration", "y")
        store.put("migration", "z")
    assert other.get("migration") == "y"
    other.put("migration", None)
    store.close()
    other.close()


def test_a_lock_lost_before_anything_was_kept_is_noticed_too(table):
    store = table.open()
    with pytest.raises(StoreError, match="lost its lock"), store.lock():
        assert end_connections(table, HOLDS) == 1
        store.describe()
    store.close()


def test_connections_that_the_server_ends_are_opened_again(table):
    store, query = table.open(), vectors(1, seed=8)[0]
    before = store.search(query, column="vector", k=5)
    assert end_connections(table, "true") >= 1
    assert store.search(query, column="vector", k=5) == before
    store.close()


def test_the_table_of_values_goes_with_its_last_value(table):
    store = table.open()
    with store.lock():
        store.put("migration", "x")
        store.put("other", "y")
        store.put("migration", None)
        assert store.get("other") == "y"
        store.put("other", None)
        assert store.get("other") is None
    assert table.run("SELECT to_regclass('crossfade_state')") == [(None,)]
    lift(store)
    store.drop_columns([c.name for c in ADDED])
    assert table.run("SELECT to_regclass('crossfade_items')") == [(None,)]
    store.close()
