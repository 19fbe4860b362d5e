"""The switch killed before and after each call that changes something ends whole, old or new."""

from __future__ import annotations

import os
import signal

import pytest
from tests.stores.chroma.app import ChromaApp
from tests.stores.chroma.world import MAP, ROWS, D, N, fill, is_near, lift, promote, told

from crossfade.stores import open_store
from crossfade.stores.chroma import state
from crossfade.stores.chroma.client import Database
from crossfade.stores.chroma.collection import Collection

CHANGING = (
    (Collection, ("upsert", "update", "delete", "rename", "note")),
    (Database, ("create", "remove")),
)


def killed_at(address: str, last: int) -> bool:
    """Promote in a process that dies at its `last`-th change; whether it came to its end.

    Odd ones die before the call, even ones after it.
    """
    child = os.fork()
    if child == 0:
        made = 0

        def wrapped(call):
            def counted(*given, **named):
                nonlocal made
                made += 1
                if made == (last + 1) // 2 and last % 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                out = call(*given, **named)
                if made == (last + 1) // 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                return out

            return counted

        try:
            store = open_store(address)
            for owner, names in CHANGING:
                for name in names:
                    setattr(owner, name, wrapped(getattr(owner, name)))
            promote(store)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def app(server, monkeypatch):
    monkeypatch.setattr(state, "LEASE_SECONDS", 0.2)
    made = ChromaApp(server.client(), server.url)
    yield made
    made.close()


def test_it_ends_whole_wherever_it_dies(app):
    last, done, seen = 0, False, set()
    url = app.address.partition("#")[0]
    while not done:
        last += 1
        app.name = f"killed-{last}"
        app.address = f"{url}#{app.name}"
        old = fill(app)
        with_columns = open_store(app.address)
        lift(with_columns)
        with_columns.close()
        before = told(app)
        done = killed_at(app.address, last)
        # Whoever opens the store next gives the name back to one of the two.
        store = open_store(app.address)
        found = app.old()
        (dim,) = {len(vector) for vector in found.values()}
        seen.add(dim)
        assert store.own_vectors("crossfade_vector") == ("old" if dim == D else "new")
        wanted = old if dim == D else old @ MAP
        assert all(is_near(found[app.key(i)], wanted[i]) for i in range(ROWS))
        assert len(found) == ROWS
        under_way = "crossfade_vector" in store.describe().added
        assert under_way or dim == N
        if last % 3 == 0 and dim == D:
            store.withdraw("crossfade_vector")
            store.drop_columns(list(store.describe().added))
        else:
            promote(store)
        wanted = old if last % 3 == 0 and dim == D else old @ MAP
        found = app.old()
        assert all(is_near(found[app.key(i)], wanted[i]) for i in range(ROWS))
        assert told(app) == before
        left = [one.name for one in app.client.list_collections() if app.name in one.name]
        assert [name for name in left if not name.startswith("crossfade_lease")] == [app.name]
        app.client.delete_collection(app.name)
        store.close()
    assert seen == {D, N}
    assert last > 20
