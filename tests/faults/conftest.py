"""An upgrade in its folder; and those of the migration tests, for tests that kill migrations."""

import pytest
from tests.migration.conftest import models, plan_folder, upgrade_folder

from crossfade import Upgrade

__all__ = ["folder", "models", "plan_folder", "upgrade", "upgrade_folder"]


@pytest.fixture(scope="module")
def upgrade(made):
    return Upgrade(solver="closed_form").fit(*made())


@pytest.fixture
def folder(upgrade, tmp_path):
    return upgrade.save(tmp_path / "upgrade")
