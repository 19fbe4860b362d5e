"""The models, upgrade and plan of the migration tests, for those that kill migrations."""

from tests.migration.conftest import models, plan_folder, upgrade_folder

__all__ = ["models", "plan_folder", "upgrade_folder"]
