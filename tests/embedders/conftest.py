"""The server and the clock that the tests of embedders share."""

from __future__ import annotations

import pytest
from tests.embedders.server import Server, Time


@pytest.fixture
def server():
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def clock():
    return Time()
