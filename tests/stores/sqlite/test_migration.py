"""Whole migrations on tables of SQLite: the tests of `tests/migration` that say what becomes of
rows, with a `vec0` table and with a rollback journal. A BLOB column is among the stores there."""

from __future__ import annotations

import pytest
from tests.migration.conftest import (  # noqa: F401  (fixtures)
    lifted,
    migration,
    models,
    plan_folder,
    upgrade_folder,
    world,
)
from tests.migration.test_changing_rows import *  # noqa: F403
from tests.migration.test_ending import *  # noqa: F403
from tests.migration.test_forward import *  # noqa: F403
from tests.migration.test_late_rows import *  # noqa: F403
from tests.migration.test_searching_meanwhile import *  # noqa: F403
from tests.stores.sqlite.app import JournalApp, Vec0App

APPS = {"journal": JournalApp, "vec0": Vec0App}


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    made = APPS[request.param](tmp_path)
    yield made
    made.close()
