"""The switch killed before and after each call that changes something: it can be called again."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.adversary.world import memory
from tests.stores.qdrant_edge.app import EdgeApp

from crossfade.stores import open_store
from crossfade.stores.qdrant_edge.client import EdgeClient
from crossfade.stores.rows import matrix
from crossfade.stores.values import FileValues
from crossfade.testing.store_contract import ADDED, VECTOR, nothing_to_write, written

ROWS = 12
NAMES = [column.name for column in ADDED]


def promote(store) -> str:
    columns = [store.vector, *NAMES]
    return store.promote(VECTOR.name, NAMES[1:], columns=columns, work=nothing_to_write)


def killed_at(address: str, last: int) -> bool:
    """Promote in a process that dies at its `last`-th change; whether it came to its end."""
    child = os.fork()
    if child == 0:
        made = 0

        def wrapped(call):
            def counted(*given):
                nonlocal made
                made += 1
                if made == (last + 1) // 2 and last % 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                out = call(*given)
                if made == (last + 1) // 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                return out

            return counted

        try:
            store = open_store(address)
            EdgeClient._do = wrapped(EdgeClient._do)
            FileValues.put = wrapped(FileValues.put)
            promote(store)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def folder():
    """In memory, where there is one: a kill loses nothing that a disk would keep."""
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


def test_it_ends_whole_wherever_it_dies(folder):
    old = np.random.default_rng(0).normal(size=(ROWS, 6)).astype(np.float32)
    last, done, back = 0, False, 0
    while not done:
        last += 1
        app = EdgeApp(folder / str(last))
        app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], [0] * ROWS, old)
        store = open_store(app.address)
        store.add_columns(ADDED)
        rows = written(store, list(range(ROWS)))
        store.write(rows)
        store.close()
        app.close()
        done = killed_at(app.address, last)
        store = open_store(app.address)
        wanted = matrix(rows[VECTOR.name])
        # Searches find every row at every point, by the shared vectors or by the old name.
        column = VECTOR.name if VECTOR.name in store.describe().added else store.vector
        assert len(store.search(wanted[3], column=column, k=ROWS)) == ROWS
        try:
            if last % 2:
                raise ValueError
            store.withdraw(VECTOR.name)
            store.drop_columns(NAMES)
            wanted, back = old, back + 1
        except Exception:
            promote(store)
        store.close()
        again = open_store(app.address)
        found = matrix(again.read(list(range(ROWS)), [again.vector])[again.vector])
        lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
        np.testing.assert_allclose(found, wanted / lengths, atol=1e-6)
        assert again.describe().added == ()
        rows = again.read(list(range(ROWS)), ["body"])
        assert rows["body"].to_pylist() == [f"text {i}" for i in range(ROWS)]
        again.close()
    assert last > 20
    assert back > 0
