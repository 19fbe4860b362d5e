"""Whole migrations on an index of FAISS, with its ids around it or in its lists: the tests of
`tests/migration` that say what becomes of rows."""

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
from tests.migration.test_backfill import *  # noqa: F403
from tests.migration.test_changing_rows import *  # noqa: F403
from tests.migration.test_ending import *  # noqa: F403
from tests.migration.test_forward import *  # noqa: F403
from tests.migration.test_late_rows import *  # noqa: F403
from tests.migration.test_searching_meanwhile import *  # noqa: F403
from tests.stores.faiss.conftest import APPS


@pytest.fixture(params=["flat", "ivf"])
def app(request, tmp_path):
    return APPS[request.param](tmp_path)
