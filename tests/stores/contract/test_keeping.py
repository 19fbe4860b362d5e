"""The contract of stores, what they keep and tell: every statement here holds for each of them."""

from __future__ import annotations

import pytest
from tests.stores.contract.conftest import ADDED, VECTOR

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store


def test_keeps_values_across_openings(app, store):
    assert store.get("migration") is None
    store.put("migration", '{"stage": "started"}')
    store.put("other", "x")
    store.put("migration", '{"stage": "é"}')
    store.close()
    again = open_store(app.place)
    assert again.get("migration") == '{"stage": "é"}'
    again.put("migration", None)
    assert again.get("migration") is None
    assert again.get("other") == "x"
    again.close()


def test_one_process_at_a_time_may_hold_it(app, store):
    with store.lock():
        second = open_store(app.place)
        with pytest.raises(StoreError, match="another process"), second.lock():
            pass
        second.close()
    with store.lock():
        pass


def test_refuses_odd_names(app, store):
    with pytest.raises(BadInput):
        open_store(app.place, vector='em"bed; DROP')
    with pytest.raises(BadInput, match="no_such"):
        open_store(app.place, vector="no_such")


def test_tells_its_statements(store):
    told = store.statements(ADDED)
    assert set(told) == {"start", "forward", "backfill", "finish", "rollback"}
    assert all(told.values())
    assert VECTOR.name in " ".join(told["start"])
