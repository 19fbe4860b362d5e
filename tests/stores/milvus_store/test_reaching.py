"""Reaching a file of milvus-lite or a server, and what is said when that fails."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.stores.milvus_store.conftest import ADDED, fill

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store
from crossfade.stores.milvus.client import connect, local_client, release
from crossfade.stores.registry import kept_value

OPEN = """
import sys
from pymilvus import MilvusClient
client = MilvusClient(sys.argv[1])
print(client.list_collections(), flush=True)
sys.stdin.read()
"""


def test_another_process_that_has_the_file_open_is_told_of(file, client):
    fill(client)
    release(file, client)
    try:
        command = [sys.executable, "-c", OPEN, str(file)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert "items" in other.stdout.readline()
            with pytest.raises(StoreError, match="another process has this file open") as caught:
                open_store(f"milvus:{file}#items")
            assert "Milvus server" in str(caught.value)
            other.stdin.close()
        open_store(f"milvus:{file}#items").close()
    finally:
        # What the fixture gives back.
        local_client(file)


def test_an_application_in_this_process_keeps_its_server(file, client):
    from pymilvus import MilvusClient

    fill(client)
    release(file, client)
    try:
        application = MilvusClient(str(file))
        application.load_collection("items")
        store = open_store(f"milvus:{file}#items")
        application.delete("items", ids=[0])
        assert store.describe().rows == 5
        store.close()
        assert len(application.query("items", filter="id >= 0")) == 5
        application.close()
    finally:
        local_client(file)


@pytest.mark.parametrize("name", ["items", "alias"])
def test_a_value_is_found_by_the_address_alone(file, client, name):
    fill(client)
    client.create_alias("items", "alias")
    address = f"milvus:{file}#{name}"
    store = open_store(address)
    store.put("stage", "started")
    store.close()
    # Whichever name it goes by, it is one collection.
    for one in ("items", "alias"):
        assert kept_value(f"milvus:{file}#{one}", "stage") == "started"


def test_collections_that_there_are_are_told(file, client):
    fill(client)
    fill(client, "others")
    store = open_store(f"milvus:{file}#items")
    store.add_columns(ADDED)
    store.close()
    with pytest.raises(BadInput, match="there are items, others"):
        open_store(f"milvus:{file}")
    with pytest.raises(BadInput, match=r"no such collection → .*: items, others$"):
        open_store(f"milvus:{file}#nothing")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("milvus:nowhere.db#items", "no file of milvus-lite"),
        ("milvus://host:19530#items", "milvus\\+http://HOST:PORT"),
        ("milvus+http://me:secret@host:19530#items", "MILVUS_TOKEN"),
        ("milvus+http://host:19530?token=secret#items", "MILVUS_TOKEN"),
        ("milvus+http://host:19530#it-ems", "no name for a collection"),
    ],
)
def test_addresses_that_are_none_are_refused(address, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=said) as caught:
        open_store(address)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_a_store_error(monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", "root:a-secret")
    monkeypatch.setattr("crossfade.stores.milvus.client._SECONDS", 0.5)
    with pytest.raises(StoreError) as caught:
        connect("milvus+http://127.0.0.1:1")
    assert "a-secret" not in str(caught.value)


def test_without_the_library_the_line_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(BadInput, match=r"pip install 'crossfade\[milvus\]'"):
        open_store("milvus+http://host:19530#items")
