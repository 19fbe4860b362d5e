"""A LanceDB table in use, and the migration of it."""

from __future__ import annotations

import pytest
from tests.migration.conftest import (  # noqa: F401  (fixtures)
    lifted,
    migration,
    models,
    upgrade_folder,
    world,
)
from tests.stores.apps import LanceApp


@pytest.fixture
def app(tmp_path):
    return LanceApp(tmp_path)
