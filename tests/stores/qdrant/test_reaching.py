"""The way to Qdrant: addresses, keys that nobody sees, and a folder that one process has open.

The way to a server is tested as far as it goes without one: what is sent over HTTP, against a
server on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from tests.stores.apps import QdrantApp
from tests.stores.qdrant.conftest import DIM

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store

SECRET = "key-that-nobody-sees"  # noqa: S105


class _Refusing(BaseHTTPRequestHandler):
    """A server that refuses everything and says what it was sent."""

    def do_GET(self) -> None:
        seen = self.headers.get("api-key", "")
        self.server.seen.append((self.path, seen))  # type: ignore[attr-defined]
        self.send_response(403)
        self.end_headers()
        self.wfile.write(f"wrong key {seen}".encode())

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_key_goes_to_the_server_and_nowhere_else(refusing, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    with pytest.raises(StoreError) as told:
        open_store(f"qdrant://127.0.0.1:{refusing.server_port}#items")
    path, key = refusing.seen[0]
    assert "/collections/items" in path
    assert key == SECRET
    assert SECRET not in str(told.value)
    assert "403" in str(told.value)
    assert told.value.__cause__ is None


def test_a_secret_in_the_address_is_refused_and_not_repeated(tmp_path):
    for address in (f"qdrant://me:{SECRET}@host:6333#items", f"qdrant://host?key={SECRET}#items"):
        with pytest.raises(BadInput, match="QDRANT_API_KEY") as told:
            open_store(address)
        assert SECRET not in str(told.value)


def test_no_server_is_a_store_error():
    with pytest.raises(StoreError, match=r"qdrant://127.0.0.1:1"):
        open_store("qdrant://127.0.0.1:1#items")


@pytest.mark.parametrize("place", ["qdrant:{0}", "qdrant:{0}/none#items", "qdrant:{0}#a/b"])
def test_addresses_that_name_nothing(folder, place):
    with pytest.raises(BadInput):
        open_store(place.format(folder))


def test_a_collection_that_is_not_there(folder, client):
    with pytest.raises(BadInput, match="no such collection"):
        open_store(f"qdrant:{folder}#items")


def test_a_folder_that_another_process_has_open_is_refused(folder, client):
    script = "import sys; from crossfade.stores import open_store; open_store(sys.argv[1])"
    place = f"qdrant:{folder}#items"
    ran = subprocess.run(
        [sys.executable, "-c", script, place], capture_output=True, text=True, env=os.environ
    )
    assert ran.returncode
    assert "StoreError" in ran.stderr
    assert "another process has this folder open" in ran.stderr


def test_an_application_and_a_store_share_a_client(tmp_path):
    app = QdrantApp(tmp_path)
    app.create([1], ["a"], [0], np.ones((1, DIM), np.float32))
    store = open_store(app.address)
    app.close()
    assert store.describe().rows == 1
    store.close()
    store.close()
    # All let go, so the folder can be opened afresh.
    again = open_store(app.address)
    assert again.describe().rows == 1
    again.close()
