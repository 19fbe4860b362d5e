"""An index of each kind, with the application that owns it."""

from __future__ import annotations

import pytest
from tests.stores.faiss.app import FaissApp, HnswApp, IvfApp

APPS = {"flat": FaissApp, "hnsw": HnswApp, "ivf": IvfApp}


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    made = APPS[request.param](tmp_path)
    yield made
    made.close()
