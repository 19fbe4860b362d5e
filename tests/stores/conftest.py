"""Every store, with an application that owns it."""

from __future__ import annotations

import pytest
from tests.stores.apps import LanceApp, ParquetApp

APPS = {
    "lancedb": LanceApp,
    "parquet": ParquetApp,
}


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    """An application of each store in turn, with an empty store."""
    return APPS[request.param](tmp_path)
