"""Promote killed at every statement, its connections ended at every statement, its answers lost:
then it is done again or withdrawn, and every row is as it should be."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import psycopg
import pytest
from tests.stores.postgres import fresh_database
from tests.stores.postgres_store.proxy import Proxy
from tests.stores.postgres_store.table import (
    NAMES,
    SHARED,
    STATE,
    VECTOR,
    Table,
    lift,
    lifted,
    made,
    vectors,
    work,
)

from crossfade.errors import StoreError
from crossfade.stores import TOKEN
from crossfade.stores.postgres.connection import Connection

ROWS = 40
OLD = vectors(ROWS)
OLD[7] = 0


@pytest.fixture(scope="module")
def url():
    return fresh_database()


def fresh(url: str, name: str) -> Table:
    """A table with what can hang on a column, and every row lifted."""
    table = Table(url, name)
    table.create(OLD, vector=f"vector vector({{}}) NOT NULL CONSTRAINT {name}_ok CHECK (id >= 0)")
    table.run(f"ALTER TABLE {name} ADD CONSTRAINT {name}_kept CHECK (vector_dims(vector) > 3)")
    table.index(f"{name}_vector")
    table.run(f"CREATE VIEW {name}_view AS SELECT id, vector FROM {name}")  # noqa: S608
    store = table.open()
    lift(store)
    store.close()
    return table


def promote(table: Table, url: str | None = None) -> None:
    store = table.open(url)
    try:
        store.promote(VECTOR.name, [STATE.name], columns=["vector", *NAMES], work=work)
    finally:
        store.close()


def schema(table: Table) -> list:
    """All of the table that people can see, but for the vectors' dimension."""
    return table.run(
        "SELECT 'column', attname, attnotnull::text FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped UNION ALL "
        "SELECT 'index', indexname, indexdef FROM pg_indexes WHERE tablename = %s UNION ALL "
        "SELECT 'check', conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s::regclass AND contype = 'c' UNION ALL "
        "SELECT 'view', relname, pg_get_viewdef(oid) FROM pg_class WHERE relname = %s",
        table.name,
        table.name,
        table.name,
        f"{table.name}_view",
    )


def dimension(table: Table) -> int:
    (dims,) = {len(v) for v in table.vectors().values()}
    return dims


def as_before(table: Table) -> None:
    found = table.vectors()
    assert sorted(found) == list(range(ROWS))
    assert all(np.array_equal(found[i], OLD[i]) for i in range(ROWS))


def as_promoted(table: Table) -> None:
    found, model = table.vectors(), lifted(OLD)
    assert sorted(found) == list(range(ROWS))
    assert all(np.array_equal(found[i], model[i]) for i in range(ROWS) if i != 7)
    assert found[7].tolist() == [0] * SHARED
    assert table.run("SELECT to_regclass(%s)", f"crossfade_{table.name}") == [(None,)]
    assert table.run(f"SELECT count(*) FROM {table.name}_view") == [(ROWS,)]  # noqa: S608


def calm(table: Table) -> None:
    """Until the server has noticed that the client is gone."""
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'crossfade'"
    )
    while table.run(busy)[0][0]:
        time.sleep(0.02)


def in_a_child(table: Table, last: int) -> bool:
    """Promote in a process that dies with its `last`-th statement; whether it came to its end."""
    child = os.fork()
    if child == 0:
        said = 0
        plain = Connection.execute

        def counted(self, *given, **named):
            nonlocal said
            said += 1
            if said == last:
                # Half of the time it has been said.
                if last % 2:
                    plain(self, *given, **named)
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, *given, **named)

        status = 1
        try:
            Connection.execute = counted
            promote(table)
            status = 0
        finally:
            os._exit(status)
    code = os.waitpid(child, 0)[1]
    assert code in (0, signal.SIGKILL)
    calm(table)
    return code == 0


def test_killed_at_every_statement_it_is_done_again_or_withdrawn(url):
    n, withdrawn, gone = 0, 0, 0
    while True:
        n += 1
        table = fresh(url, f"k{n}")
        before = schema(table)
        if in_a_child(table, n):
            break
        # Nobody sees anything half done.
        assert dimension(table) in (OLD.shape[1], SHARED)
        if n % 4 < 2:
            promote(table)
            as_promoted(table)
        else:
            store = table.open()
            try:
                store.withdraw(VECTOR.name)
                as_before(table)
                assert store.tally(STATE.name) == {"forward": ROWS - 1, None: 1}
                withdrawn += 1
            except StoreError as error:
                assert "gone already" in str(error)
                gone += 1
                promote(table)
                as_promoted(table)
            store.close()
        # PostgreSQL says it in other words, and in the order of its own.
        assert sorted(schema(table)) == sorted(before)
    as_promoted(table)
    assert n > 50 and withdrawn > 10 and gone > 0, (n, withdrawn, gone)


def test_connections_that_end_at_any_statement_are_made_again(url, monkeypatch):
    plain = Connection.execute
    n = 0
    while True:
        # Every fifth, for time's sake: the test above dies at each of them.
        n += 5
        table = fresh(url, f"e{n}")
        before, said = schema(table), [0]

        def counted(self, *given, said=said, last=n, **named):
            said[0] += 1
            if said[0] == last:
                with psycopg.connect(url, autocommit=True) as other:
                    other.execute("SELECT pg_terminate_backend(%s, 5000)", [self.info.backend_pid])
            return plain(self, *given, **named)

        monkeypatch.setattr(Connection, "execute", counted)
        promote(table)
        monkeypatch.setattr(Connection, "execute", plain)
        as_promoted(table)
        assert sorted(schema(table)) == sorted(before)
        if said[0] < n:
            break
    assert n > 50


@pytest.mark.parametrize("late", [0.0, 0.6])
def test_answers_that_are_lost_do_not_count_twice(url, late):
    """The server commits, at once or while it is tried again, and the client never hears of it."""
    n = 0
    while True:
        n += 1
        table = fresh(url, f"a{n}_{bool(late):d}")
        before, proxy = schema(table), Proxy(url)
        proxy.lose, proxy.late = n, late
        promote(table, proxy.url)
        proxy.close()
        as_promoted(table)
        assert sorted(schema(table)) == sorted(before)
        if proxy.commits < n:
            break
    assert n > 3


def test_an_index_whose_build_was_killed_is_built_again(url):
    table = Table(url, "built")
    table.create(vectors(6000))
    table.index("built_vector", "hnsw (vector vector_cosine_ops) WITH (ef_construction = 400)")
    store = table.open()
    lift(store)
    invalid = (
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE NOT i.indisvalid "
        "AND i.indrelid IN (to_regclass('built'), to_regclass('crossfade_built'))"
    )
    building = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND datname = current_database()"
    )
    left = []

    def kill() -> None:
        """In the middle of the build, twice."""
        for _ in range(2):
            while not table.run(invalid):
                time.sleep(0.01)
            table.run(building)
            left.append(table.run(invalid))

    for act in (lambda: store.build_index(VECTOR.name), lambda: promote(table)):
        killer = threading.Thread(target=kill)
        killer.start()
        act()
        killer.join()
        assert table.run(invalid) == []
    assert len(left) == 4
    assert table.run("SELECT indexname FROM pg_indexes WHERE tablename = 'built' ORDER BY 1") == [
        ("built_pkey",),
        ("built_vector",),
    ]
    store.close()


def test_writes_whose_answers_are_lost_are_counted_as_they_are(url):
    """A large batch goes over several connections, whose commits come one after the other."""
    table = Table(url, "written")
    table.create(vectors(1200))
    store = table.open()
    lift(store)
    store.build_index(VECTOR.name)
    store.close()
    for lost in (1, 2, 3):
        proxy = Proxy(url)
        proxy.lose = lost
        store = table.open(proxy.url)
        rows = store.read(list(range(1200)), ["vector"])
        assert store.write(made(rows, f"turn {lost}")) == 1200
        assert store.tally(STATE.name) == {f"turn {lost}": 1200}
        assert proxy.commits > lost
        store.close()
        proxy.close()
    proxy = Proxy(url)
    proxy.lose = 1
    store = table.open(proxy.url)
    assert store.erase(store.read([3, 4, 5], []).select(["id", TOKEN])) == 3
    assert store.tally(STATE.name) == {"turn 3": 1197, None: 3}
    store.close()
    proxy.close()
