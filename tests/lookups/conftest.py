"""A store of texts in use, of each kind in turn."""

from __future__ import annotations

import pytest
from tests.lookups.models import old, texts_of
from tests.stores.conftest import app  # noqa: F401  (every store in turn)

ROWS = 400


@pytest.fixture
def texts(app):  # noqa: F811
    """The application's texts by id, in a store of their old vectors."""
    made = texts_of(ROWS)
    app.create(list(range(ROWS)), made, [n % 4 for n in range(ROWS)], old(made))
    return dict(enumerate(made))
