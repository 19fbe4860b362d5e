"""The right to migrate a Qdrant collection is a lease: one holder, renewed, and told when lost."""

from __future__ import annotations

import time

import pytest

from crossfade.errors import StoreError
from crossfade.stores.qdrant.client import Database
from crossfade.stores.qdrant.state import State


def test_a_lease_is_held_by_one_and_runs_out_with_its_holder(folder, client):
    place = Database(client, "qdrant://host", None)
    one, two = State(place, "items"), State(place, "items")
    other = State(place, "others")
    refused = pytest.raises(StoreError, match="another process is migrating")
    with one.lease(), other.lease(), refused, two.lease():
        pass
    with two.lease():
        pass
    # A holder that died renews nothing.
    assert one._take("dead", 0.05)
    time.sleep(0.1)
    with two.lease(), pytest.raises(StoreError), one.lease():
        pass


def test_a_lease_is_renewed_while_it_is_held(folder, client):
    place = Database(client, "qdrant://host", None)
    with State(place, "items").lease(0.4):
        time.sleep(1.0)
        with pytest.raises(StoreError, match="another process"), State(place, "items").lease():
            pass


def test_a_lease_that_was_lost_is_told(folder, client):
    state = State(Database(client, "qdrant://host", None), "items")

    def held():
        with state.lease(0.4):
            state._write("lease", {"owner": "another", "until": time.time() + 60})
            time.sleep(1.0)

    with pytest.raises(StoreError, match="passed to another process"):
        held()
    assert state._owner() == "another"
