"""Every store, with an application that owns it."""

from __future__ import annotations

import pytest
from tests.stores.apps import LanceApp, ParquetApp, PostgresApp, QdrantApp
from tests.stores.sqlite.app import SqliteApp

APPS = {
    "lancedb": LanceApp,
    "parquet": ParquetApp,
    "pgvector": PostgresApp,
    "qdrant": QdrantApp,
    "sqlite": SqliteApp,
}


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    """An application of each store in turn, with an empty store."""
    made = APPS[request.param](tmp_path)
    yield made
    made.close()
