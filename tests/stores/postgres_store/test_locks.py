"""Promote beside an application that reads, writes and locks: neither aborts the other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from tests.stores.postgres_store.table import (
    NAMES,
    SHARED,
    STATE,
    VECTOR,
    Table,
    lift,
    lifted,
    text,
    vectors,
    work,
)

from crossfade.errors import StoreError

COLUMNS = ["vector", *NAMES]


def promote(store, working=work) -> str:
    return store.promote(VECTOR.name, [STATE.name], columns=COLUMNS, work=working)


@pytest.fixture
def small():
    app = Table()
    app.create(vectors(200))
    store = app.open()
    lift(store)
    yield app, store
    store.close()


def at_the_switch(table) -> None:
    """Wait until promote asks for the table, in vain."""
    # It holds this one while it tries, again and again, to get the stronger one.
    waits = (
        "SELECT count(*) FROM pg_locks WHERE relation = 'items'::regclass "
        "AND mode = 'ShareUpdateExclusiveLock' AND granted"
    )
    column = (
        "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "WHERE a.attname = 'crossfade_vector' AND a.attrelid = 'items'::regclass"
    )
    while not (table.run(waits)[0][0] and table.run(column)[0][0]):
        time.sleep(0.01)


def test_a_search_that_has_the_table_beside_gets_the_other_one(small):
    """It joins both, and has locked the first when the switch begins."""
    table, store = small
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(table.url) as search,
    ):
        search.execute("SELECT FROM crossfade_items LIMIT 1")
        promoting = threads.submit(promote, store)
        at_the_switch(table)
        for _ in range(20):
            assert search.execute("SELECT count(*) FROM items").fetchone() == (200,)
            time.sleep(0.05)
        search.commit()
        assert promoting.result() == "vector"


def test_while_it_waits_for_a_long_reader_others_do_not_wait_for_it(small):
    table, store = small
    waits = []
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(table.url) as reader,
        psycopg.connect(table.url, autocommit=True) as other,
    ):
        reader.execute("SELECT count(*) FROM crossfade_items")
        # The column can be added; then this one comes and stays.
        first = threading.Event()

        def working(rows):
            if not first.is_set():
                reader.execute("SELECT count(*) FROM items")
                first.set()
            return work(rows)

        promoting = threads.submit(promote, store, working)
        first.wait()
        end = time.monotonic() + 6
        while time.monotonic() < end:
            begin = time.monotonic()
            other.execute("UPDATE items SET body = body WHERE id = 3")
            waits.append(time.monotonic() - begin)
            time.sleep(0.002)
        assert not promoting.done()
        reader.commit()
        assert promoting.result() == "vector"
    # Today's queue is 80 ms long; a lock that is waited for would have kept others for seconds.
    assert max(waits) < 1.0
    assert len(table.vectors()[3]) == SHARED


def test_rows_that_others_have_locked_are_left_for_later(small):
    table, store = small
    new = vectors(1, seed=5)[0]
    with ThreadPoolExecutor(1) as threads, psycopg.connect(table.url) as other:
        shown = threading.Event()

        def working(rows):
            shown.set()
            return work(rows)

        first = promote_begun(store)
        assert first
        other.execute("SELECT FROM items WHERE id IN (5, 6) FOR UPDATE")
        promoting = threads.submit(promote, store, working)
        # It has gone through all rows, and these two are not in its way.
        shown.wait()
        other.execute("UPDATE items SET vector = %s WHERE id = 5", [text(new)])
        at_the_switch(table)
        assert not promoting.done()
        other.commit()
        assert promoting.result() == "vector"
    found, old = table.vectors(), vectors(200)
    old[5] = new
    for key, vector in found.items():
        np.testing.assert_array_equal(vector, lifted(old[key])[0])


def promote_begun(store) -> bool:
    """The column is there, and the rest is not done."""

    class Stopped(Exception):
        pass

    def working(rows):
        raise Stopped

    with pytest.raises(Stopped):
        promote(store, working)
    return True


def test_a_transaction_that_stays_is_named_in_the_end(small, monkeypatch):
    table, store = small
    monkeypatch.setattr("crossfade.stores.postgres.exclusive._LOCK_PATIENCE", 1.0)
    with psycopg.connect(table.url) as reader:
        reader.execute("SELECT count(*) FROM items")
        pid = reader.info.backend_pid
        with pytest.raises(StoreError, match=f"process {pid} of 'postgres'"):
            promote(store)
    promote(store)


def test_two_row_transactions_and_searches_go_on(rows=6_000):
    """Neither side aborts, and every row ends with what is right for it."""
    table = Table()
    old = table.create(vectors(rows))
    table.index()
    store, stop = table.open(), threading.Event()
    lift(store)
    store.build_index(VECTOR.name)
    errors, counts = [], {"transactions": 0, "searches": 0}

    def application() -> None:
        rng = np.random.default_rng(0)
        with psycopg.connect(table.url, autocommit=True) as connection:
            while not stop.is_set():
                try:
                    with connection.transaction():
                        for key in rng.integers(rows, size=2):
                            connection.execute(
                                "UPDATE items SET body = body || '.' WHERE id = %s", [int(key)]
                            )
                    counts["transactions"] += 1
                except psycopg.Error as error:
                    errors.append(f"application: {error}")

    searching = table.open()

    def searches(seed: int) -> None:
        queries = vectors(50, seed=seed)
        column, ask = VECTOR.name, lifted(queries)
        n = 0
        while not stop.is_set():
            n += 1
            try:
                found = searching.search(ask[n % 50], column=column, k=10, columns=["body"])
                assert len(found) == 10
                counts["searches"] += 1
            except StoreError as error:
                if column != VECTOR.name or "does not exist" not in str(error):
                    errors.append(f"search: {error}")
                # The shared vectors are the table's own now.
                column = "vector"

    threads = [threading.Thread(target=application)]
    threads += [threading.Thread(target=searches, args=[seed]) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    try:
        promote(store)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert min(counts.values()) > 50, counts
    found = table.vectors()
    model = lifted(old)
    assert all(np.array_equal(found[i], model[i]) for i in range(rows))
    store.close()
    searching.close()
