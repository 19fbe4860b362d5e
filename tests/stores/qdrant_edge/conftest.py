"""An application with a shard of Qdrant's engine."""

from __future__ import annotations

import pytest
from tests.stores.qdrant_edge.app import EdgeApp


@pytest.fixture
def app(tmp_path):
    made = EdgeApp(tmp_path)
    yield made
    made.close()
