"""A table of SQLite of each kind, with the application that owns it."""

from __future__ import annotations

import pytest
from tests.stores.sqlite.app import JournalApp, SqliteApp, Vec0App

APPS = {"blob": SqliteApp, "journal": JournalApp, "vec0": Vec0App}


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    made = APPS[request.param](tmp_path)
    yield made
    made.close()
