"""A Chroma server for the whole session, and an application on it or on a folder."""

from __future__ import annotations

import pytest
from tests.adversary.world import memory
from tests.stores.chroma.app import ChromaApp, folder_app
from tests.stores.chroma.server import Server


@pytest.fixture(scope="session")
def server():
    made = Server(memory())
    yield made
    made.stop()


@pytest.fixture(params=["folder", "server"])
def app(request, tmp_path):
    if request.param == "folder":
        made = folder_app(tmp_path)
    else:
        server = request.getfixturevalue("server")
        made = ChromaApp(server.client(), server.url)
    yield made
    made.close()
