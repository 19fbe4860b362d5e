"""The models, upgrade and plan of the migration tests, for the command that migrates."""

from tests.migration.conftest import models, plan_folder, upgrade_folder

__all__ = ["models", "plan_folder", "upgrade_folder"]
