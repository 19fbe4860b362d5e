"""A switch killed at every step that lasts is whole: the old index, or the new one."""

from __future__ import annotations

import os
import signal

import faiss
import numpy as np
import pytest
from tests.stores.faiss.app import unit
from tests.stores.faiss.conftest import APPS

from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, open_store
from crossfade.stores.faiss import promote as switching
from crossfade.stores.rows import matrix
from crossfade.testing.store_contract import ADDED, DIM, PRINT, SHARED, STATE, VECTOR, written

ROWS = 30
NAMES = [STATE.name, PRINT.name]
rng = np.random.default_rng(3)
OLD = rng.normal(size=(ROWS, DIM)).astype(np.float32)
TURN = rng.normal(size=(DIM, SHARED)).astype(np.float32)
ACTS = ("replace", "rename", "unlink", "remove", "rmdir", "link", "fsync")


class Named:
    id = "id"


def work(rows):
    """Rows that were never written, as `finish` lifts them."""
    late = rows.filter(rows[STATE.name].is_null())
    if not len(late):
        return None
    made = written(Named, late["id"].to_pylist(), token=late[TOKEN])
    at = made.schema.get_field_index(VECTOR.name)
    return made.set_column(at, VECTOR.name, to_arrow(matrix(late["vector"]) @ TURN))


def lifted(app):
    app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], [7] * ROWS, OLD)
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(work(next(store.stream(["vector", *NAMES]))))
    # One that comes late, for `promote` to find.
    app.insert([99], ["late"], [7], OLD[:1] * 2)


def promote(address):
    store = open_store(address)
    assert store.promote(VECTOR.name, NAMES, columns=["vector", *NAMES], work=work) == "vector"


def killed_at(address, number):
    """Whether the process died before the n-th act that lasts."""
    child = os.fork()
    if child == 0:
        # Its threads do not come along, and would be waited for.
        faiss.omp_set_num_threads(1)
        left = number

        def dying(act):
            def acting(*arguments, **named):
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return act(*arguments, **named)

            return acting

        try:
            for name in ACTS:
                setattr(os, name, dying(getattr(os, name)))
            switching.exchange = dying(switching.exchange)
            promote(address)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("kind", sorted(APPS))
def test_a_kill_at_any_act_leaves_the_old_index_or_the_new_one(kind, tmp_path):
    ends, number = set(), 0
    while True:
        app = APPS[kind](tmp_path / str(number))
        lifted(app)
        died = killed_at(app.address, number)
        found = app.old()
        new = {len(vector) for vector in found.values()} == {SHARED}
        assert sorted(found) == [*range(ROWS), 99]
        old = {**dict(enumerate(unit(OLD))), 99: unit(OLD[0])}
        for key, vector in found.items():
            wanted = unit(old[key] @ TURN) if new else old[key]
            np.testing.assert_allclose(vector, wanted, rtol=1e-4, atol=1e-6)
        store = open_store(app.address)
        if number % 2 or store._side.columns() == {}:
            promote(app.address)
            assert {len(vector) for vector in app.old().values()} == {SHARED}
        else:
            try:
                store.withdraw(VECTOR.name)
            except Exception as error:
                assert "the old vectors are gone" in str(error)
                assert new
                promote(app.address)
            else:
                store.drop_columns([column.name for column in ADDED])
                after = app.old()
                assert {len(vector) for vector in after.values()} == {DIM}
                for key, vector in after.items():
                    np.testing.assert_array_equal(vector, old[key])
        assert open_store(app.address).describe().added == ()
        side = tmp_path / str(number) / ".items.index.crossfade.columns"
        left = {path.name for path in side.iterdir() if not path.name.startswith(".")}
        assert left <= {"columns.json"}
        ends.add((died, new))
        if not died:
            break
        number += 1
    assert ends >= {(True, False), (True, True), (False, True)}
    assert number > 8
