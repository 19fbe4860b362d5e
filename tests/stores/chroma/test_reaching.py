"""Addresses, folders that another process has open, keys, and leases."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from tests.stores.chroma.app import ChromaApp, folder_app
from tests.stores.chroma.world import fill

from crossfade.errors import BadInput, MissingExtra, StoreBusy, StoreError
from crossfade.stores import open_store
from crossfade.stores.chroma import client
from crossfade.stores.chroma.state import State, beside
from crossfade.stores.registry import address_of, kept_value


@pytest.fixture
def on_server(server):
    made = ChromaApp(server.client(), server.url)
    fill(made)
    yield made
    made.close()


def test_addresses_name_folders_and_servers():
    assert address_of("chroma:shop/db#items").at == "chroma:shop/db"
    assert address_of("chroma+https://host:8000#items").table == "items"


@pytest.fixture
def first(app):
    """Its collection is named among the first: others have left theirs on the server."""
    app.name = f"a-{app.name}"
    fill(app)
    return app


def test_an_address_without_a_collection_lists_those_there_are(first):
    with pytest.raises(BadInput, match=f"names no collection .* there are .*{first.name}"):
        open_store(first.address.partition("#")[0])


def test_a_collection_that_is_not_there_is_told_with_those_that_are(first):
    with pytest.raises(BadInput, match=f"no such collection .*{first.name}"):
        open_store(f"{first.address.partition('#')[0]}#other")


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("chroma:{folder}#items", "no folder of Chroma"),
        ("chroma://host#items", r"chroma\+http://HOST:PORT"),
        ("chroma+http://app:secret@host:1#items", "CHROMA_API_KEY"),
        ("chroma+http://host:1/tenant#items", "/TENANT/DATABASE"),
        ("chroma:{folder}#a", "no name for a collection"),
    ],
)
def test_addresses_that_cannot_be(tmp_path, address, cause):
    with pytest.raises(BadInput, match=cause) as raised:
        open_store(address.format(folder=tmp_path))
    assert "secret" not in str(raised.value)


def test_a_server_that_is_away_is_an_error_of_ours():
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9"):
        open_store("chroma+http://127.0.0.1:9#items")


def test_the_key_is_never_told(monkeypatch):
    monkeypatch.setenv("CHROMA_API_KEY", "s3cret-key")
    with pytest.raises(StoreError) as raised, client.translate_errors("place"):
        raise ValueError("bad token s3cret-key")
    assert "s3cret" not in str(raised.value)


def test_a_missing_library_is_told_with_the_line_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    (tmp_path / "chroma.sqlite3").touch()
    with pytest.raises(MissingExtra, match=r"pip install 'crossfade\[chroma\]'"):
        open_store(f"chroma:{tmp_path}#items")


def test_a_folder_that_another_process_has_open_is_refused(tmp_path):
    app = folder_app(tmp_path)
    fill(app)
    app.close()
    code = (
        "import sys, chromadb; c = chromadb.PersistentClient(sys.argv[1]); "
        "c.list_collections(); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "chroma")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match="another process has this folder open"):
            open_store(app.address)
    finally:
        other.communicate()
    open_store(app.address).close()


def test_an_application_of_this_process_shares_the_folder_whatever_its_settings(tmp_path):
    import chromadb

    own = chromadb.PersistentClient(str(tmp_path / "chroma"))
    app = ChromaApp(own, f"chroma:{tmp_path}/../{tmp_path.name}/chroma")
    fill(app)
    store = open_store(app.address)
    app.insert(["more"], ["more"], [1], store_row(store))
    assert store.read(["more"], ["embedding"])["embedding"][0].is_valid
    store.close()
    assert own.list_collections()
    own.close()


def store_row(store):
    from crossfade.stores.rows import matrix

    return matrix(store.read(["000001"], ["embedding"])["embedding"])


def test_a_folder_opened_twice_by_two_paths_is_refused(tmp_path, monkeypatch):
    import chromadb

    monkeypatch.chdir(tmp_path)
    app = folder_app(tmp_path)
    fill(app)
    second = chromadb.PersistentClient("chroma")
    with pytest.raises(StoreError, match="opened the folder twice"):
        open_store(app.address)
    second.close()
    app.close()


def test_values_are_kept_by_the_address_alone(on_server):
    store = open_store(on_server.address)
    store.put("stage", "started")
    assert kept_value(on_server.address, "stage") == "started"
    store.close()


@pytest.fixture
def states(on_server, server):
    """Two processes' views of one collection's state."""
    both = [State(client.connect(server.url), on_server.name) for _ in range(2)]
    yield both
    for one in both:
        one.database.close()


def test_a_lease_is_held_by_one_and_renewed(on_server, states):
    one, two = states
    with one.lease(0.4):
        time.sleep(0.9)
        with pytest.raises(StoreBusy), two.lease(0.4):
            pass
    with two.lease(0.4):
        pass


def test_the_lease_of_a_dead_holder_runs_out(on_server, states):
    one, two = states
    assert one._take(0.2) is not None
    assert two._take(0.2) is None
    time.sleep(0.25)
    with two.lease(5.0):
        names = [found.name for found in on_server.client.list_collections()]
        assert beside("lease", on_server.name) in names


def test_whoever_has_lost_its_lease_is_told(on_server, states):
    one, two = states
    with pytest.raises(StoreError, match="passed to another process"), one.lease(0.4):
        two.database.remove(beside("lease", on_server.name))
        with two.lease(5.0):
            time.sleep(0.4)
