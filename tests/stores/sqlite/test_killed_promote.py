"""A switch killed at every statement is whole: all old vectors, or all new ones."""

from __future__ import annotations

import os
import signal

import apsw
import numpy as np
import pytest
from tests.stores.sqlite.app import SqliteApp, Vec0App

from crossfade.errors import StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, open_store
from crossfade.stores.rows import matrix
from crossfade.testing.store_contract import ADDED, DIM, PRINT, SHARED, STATE, VECTOR, written

ROWS = 30
NAMES = [STATE.name, PRINT.name]
rng = np.random.default_rng(3)
OLD = rng.normal(size=(ROWS, DIM)).astype(np.float32)
TURN = rng.normal(size=(DIM, SHARED)).astype(np.float32)


def work(rows):
    """Rows that were never written, as `finish` lifts them."""
    late = rows.filter(rows[STATE.name].is_null())
    if not len(late):
        return None
    made = written(Named, late["id"].to_pylist(), token=late[TOKEN])
    at = made.schema.get_field_index(VECTOR.name)
    return made.set_column(at, VECTOR.name, to_arrow(matrix(late["vector"]) @ TURN))


class Named:
    id = "id"


def lifted(app):
    app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], [7] * ROWS, OLD)
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(work(next(store.stream(["vector", *NAMES]))))
    # One that comes late, for `promote` to find.
    app.insert([99], ["late"], [7], OLD[:1] * 2)
    store.close()


def promote(address):
    store = open_store(address)
    try:
        store.promote(VECTOR.name, NAMES, columns=["vector", *NAMES], work=work)
    finally:
        store.close()


def killed_at(address, number):
    """Whether the process died before the n-th statement that is executed in it."""
    child = os.fork()
    if child == 0:
        left = number

        def count(cursor, sql, bindings):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        def watch(connection):
            connection.exec_trace = count

        try:
            apsw.connection_hooks.append(watch)
            promote(address)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def expected(ids, new):
    old = {**dict(enumerate(OLD)), 99: OLD[0] * 2}
    return np.array([old[key] @ TURN if new else old[key] for key in ids])


@pytest.mark.parametrize("kind", [SqliteApp, Vec0App])
def test_a_kill_at_any_statement_leaves_old_vectors_or_new_ones(tmp_path, kind):
    ends = set()
    number = 0
    while True:
        app = kind(tmp_path / str(number))
        lifted(app)
        died = killed_at(app.address, number)
        found = app.old()
        dims = {len(vector) for vector in found.values()}
        assert len(dims) == 1
        new = dims == {SHARED}
        assert sorted(found) == [*range(ROWS), 99]
        np.testing.assert_allclose(
            np.array([found[key] for key in sorted(found)]), expected(sorted(found), new), rtol=1e-5
        )
        store = open_store(app.address)
        assert store.describe().added == (() if new else tuple(c.name for c in ADDED))
        if number % 2:
            promote(app.address)
            assert {len(vector) for vector in app.old().values()} == {SHARED}
        elif new:
            with pytest.raises(StoreError, match="the old vectors are gone"):
                store.withdraw(VECTOR.name)
        else:
            store.withdraw(VECTOR.name)
            store.drop_columns([column.name for column in ADDED])
            assert {len(vector) for vector in app.old().values()} == {DIM}
        assert store.describe().added == ()
        tables = app.run("SELECT name FROM sqlite_schema WHERE name LIKE 'crossfade%'")
        assert tables == []
        store.close()
        app.close()
        ends.add((died, new))
        if not died:
            break
        # The rows of a batch are one statement each: not all of them are tried.
        number += 1 if number < 30 else 7
    assert (True, False) in ends
    assert (False, True) in ends
    assert number > 20
