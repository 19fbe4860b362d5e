"""What the Qdrant store relies on, by the engine that a server runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import qdrant_edge as edge
from tests.stores.qdrant_edge.app import UPDATE, EdgeApp

from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.stores import TOKEN, open_store
from crossfade.stores.qdrant.points import MARK, Points
from crossfade.stores.qdrant_edge.client import local_shard, release
from crossfade.stores.registry import address_of, kept_value
from crossfade.stores.rows import matrix
from crossfade.stores.values import beside
from crossfade.testing.store_contract import ADDED, STATE, VECTOR, nothing_to_write, written

ROWS = 20


@pytest.fixture
def old():
    return np.random.default_rng(0).normal(size=(ROWS, 6)).astype(np.float32)


@pytest.fixture
def store(app, old):
    app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], [0] * ROWS, old)
    opened = open_store(app.address)
    opened.add_columns(ADDED)
    yield opened
    opened.close()


def test_a_point_replaced_between_the_look_and_the_write_is_not_written(
    app, store, old, monkeypatch
):
    update = Points.update

    def replaced_first(self, *given):
        app.change(3, "another", old[5])
        return update(self, *given)

    monkeypatch.setattr(Points, "update", replaced_first)
    rows = store.read([2, 3, 4], [store.vector])
    assert store.write(written(store, [2, 3, 4], token=rows[TOKEN])) == 2
    found = store.read([2, 3, 4], [STATE.name, VECTOR.name])
    assert found[STATE.name].to_pylist() == ["lifted", None, "lifted"]
    assert [value.is_valid for value in found[VECTOR.name]] == [True, False, True]


def test_a_point_deleted_between_the_look_and_the_write_stays_deleted(app, store, monkeypatch):
    update = Points.update

    def deleted_first(self, *given):
        if 3 in app.payloads():
            app.delete(3)
        return update(self, *given)

    monkeypatch.setattr(Points, "update", deleted_first)
    assert store.write(written(store, [2, 3])) == 1
    assert 3 not in app.payloads()
    assert store.tally(STATE.name) == {"lifted": 1, None: ROWS - 2}


def test_a_change_of_the_vector_alone_is_seen_at_the_next_look(app, store, old, monkeypatch):
    update = Points.update

    def changed_first(self, *given):
        vector = edge.PointVectors(id=3, vector={"vector": old[5].tolist()})
        app.shard.update(UPDATE.update_vectors([vector]))
        return update(self, *given)

    rows = store.read([3], [store.vector])
    with monkeypatch.context() as patch:
        patch.setattr(Points, "update", changed_first)
        store.write(written(store, [3], token=rows[TOKEN]))
    assert store.read([3], [])[TOKEN] != rows[TOKEN]


def test_points_that_went_meanwhile_are_no_error_of_an_erasure(app, store, monkeypatch):
    store.write(written(store, [2, 3]))
    rows = store.read([2, 3], [])
    clear = Points.clear

    def deleted_first(self, *given):
        app.delete(3)
        clear(self, *given)

    monkeypatch.setattr(Points, "clear", deleted_first)
    store.erase(rows)
    assert store.read([2], [STATE.name])[STATE.name].to_pylist() == [None]


def test_no_mark_is_left(app, store):
    store.write(written(store, list(range(ROWS))))
    assert not any(MARK in payload for payload in app.payloads().values())
    # But what a killed process has left goes with the columns.
    app.shard.update(UPDATE.set_payload([4], {MARK: "left"}))
    store.drop_columns([column.name for column in ADDED])
    assert app.payloads()[4] == {"body": "text 4", "kind": 0}


def test_a_vector_without_a_name_goes_on_and_gets_one_in_the_end(tmp_path, old):
    app = EdgeApp(tmp_path)
    app.vector_name = ""
    app.create(list(range(ROWS)), ["x"] * ROWS, [0] * ROWS, old)
    store = open_store(app.address)
    store.add_columns(ADDED)
    app.insert([100], ["late"], [1], old[:1])
    rows = written(store, [*range(ROWS), 100])
    store.write(rows)
    name = store.promote(VECTOR.name, [c.name for c in ADDED[1:]], columns=(), work=nothing)
    store.close()
    again = open_store(app.address, vector=name)
    found = matrix(again.read([3], [name])[name])[0]
    wanted = matrix(rows[VECTOR.name])[3]
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    again.close()
    app.close()


nothing = nothing_to_write


def test_what_was_written_survives_the_death_of_the_process(tmp_path, old):
    app = EdgeApp(tmp_path)
    app.create(list(range(ROWS)), ["x"] * ROWS, [0] * ROWS, old)
    app.close()
    child = os.fork()
    if child == 0:
        try:
            store = open_store(app.address)
            store.add_columns(ADDED)
            store.write(written(store, [1, 2, 3]))
            store.put("stage", "written")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store = open_store(app.address)
    assert store.tally(STATE.name) == {"lifted": 3, None: ROWS - 3}
    assert store.get("stage") == "written"
    store.close()


def test_a_folder_that_is_open_elsewhere_is_refused(app, store):
    code = (
        "import sys\nfrom crossfade.stores import open_store\n"
        "try:\n    open_store(sys.argv[1])\nexcept Exception as error:\n    print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, app.address], capture_output=True, text=True, check=True
    )
    assert "open already, in this process or another" in said.stdout
    assert "local_shard" in said.stdout


def test_addresses(tmp_path, app, store):
    assert address_of("qdrant-edge:shop/shard").at == "qdrant-edge:shop/shard"
    with pytest.raises(BadInput, match="no folder of Qdrant's engine"):
        open_store(f"qdrant-edge:{tmp_path}/none")
    store.put("stage", "started")
    assert kept_value(app.address, "stage") == "started"
    assert store.name == app.address


def test_a_missing_library_is_told_with_the_line_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    (tmp_path / "edge_config.json").write_text("{}")
    with pytest.raises(MissingExtra, match=r"pip install 'crossfade\[qdrant-edge\]'"):
        open_store(f"qdrant-edge:{tmp_path}")


@pytest.mark.parametrize("kept", ["with the vector", "without it"])
def test_killed_while_a_vector_was_dropped_a_folder_is_opened_again(tmp_path, old, kept):
    folder = tmp_path / "shard"
    folder.mkdir()
    config, noted = folder / "edge_config.json", beside(folder, "config")
    params = edge.EdgeVectorParams(size=6, distance=edge.Distance.Cosine)
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors={"vector": params}))
    points = [edge.Point(id=i, vector={"vector": v}) for i, v in enumerate(old.tolist())]
    shard.update(UPDATE.upsert_points(points))
    shard.update(UPDATE.create_dense_vector("more", 3, edge.Distance.Cosine))
    shard.flush()
    both = config.read_bytes()
    if kept == "without it":
        shard.update(UPDATE.delete_vector_name("more"))
        shard.flush()
        shard.close()
        # The segments have done it, and what is written down of them has not.
        config.write_bytes(both)
    else:
        shard.close()
        told = json.loads(both)
        del told["vectors"]["more"]
        config.write_text(json.dumps(told))
    with pytest.raises(StoreError):
        local_shard(folder)
    noted.write_bytes(both)
    opened = local_shard(folder)
    assert opened.count(edge.CountRequest(exact=True)) == ROWS
    assert ("more" in json.loads(config.read_bytes())["vectors"]) is (kept == "with the vector")
    release(folder)


def test_the_engine_s_errors_are_ours(app, store, old):
    with pytest.raises(StoreError):
        store.search(np.ones(5, np.float32), column=store.vector, k=1)


def test_it_needs_no_library_for_servers(app, store):
    code = (
        "import sys\nsys.modules['qdrant_client'] = None\n"
        "from crossfade.stores import open_store\nimport numpy as np\n"
        "store = open_store(sys.argv[1])\n"
        "print(store.describe().rows, len(store.search(np.ones(6, 'f4'), column='vector', k=3,"
        " where={'body': ['text 1', 'text 2']})))"
    )
    store.close()
    app.close()
    app._opened = False
    done = subprocess.run([sys.executable, "-c", code, app.address], capture_output=True, text=True)
    assert done.stdout.split() == [str(ROWS), "2"], done.stderr
