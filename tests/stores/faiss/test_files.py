"""Indexes of every kind, with their ids and columns beside them, and what is refused."""

from __future__ import annotations

import json

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stores.faiss.app import FaissApp, unit

from crossfade.embedders.choose import open_embedder
from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.stores import TOKEN, open_store
from crossfade.stores.faiss.promote import Switch
from crossfade.stores.parquet.delta import Sidecar
from crossfade.stores.rows import matrix, similarities
from crossfade.testing.store_contract import ADDED, SHARED, STATE, VECTOR, written

ROWS, DIM = 160, 6
OLD = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
NAMES = [column.name for column in ADDED]


def idle(rows):
    """For `promote`: of no row anything is to be written."""


def flat(metric=faiss.METRIC_L2):
    made = faiss.IndexFlat(DIM, metric)
    made.add(OLD)
    return made


def mapped():
    made = faiss.IndexIDMap(faiss.IndexFlatL2(DIM))
    made.add_with_ids(OLD, np.arange(ROWS)[::-1] * 3)
    return made


def ivf():
    made = faiss.index_factory(DIM, "IVF4,Flat", faiss.METRIC_L2)
    made.train(OLD)
    made.add_with_ids(OLD, np.arange(ROWS)[::-1] * 3)
    made.nprobe = 3
    made.set_direct_map_type(faiss.DirectMap.Hashtable)
    return made


def hnsw():
    made = faiss.IndexHNSWFlat(DIM, 12)
    made.hnsw.efConstruction, made.hnsw.efSearch = 33, 44
    made.add(OLD)
    return made


def mapped_ivf():
    inner = faiss.index_factory(DIM, "IVF4,Flat", faiss.METRIC_L2)
    inner.train(OLD)
    made = faiss.IndexIDMap2(inner)
    made.add_with_ids(OLD, np.arange(ROWS)[::-1] * 3)
    return made


KINDS = {"flat": flat, "mapped": mapped, "ivf": ivf, "hnsw": hnsw, "mapped ivf": mapped_ivf}
OWN_IDS = ("mapped", "ivf", "mapped ivf")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.index"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_index_becomes_another_of_its_kind(path, kind):
    faiss.write_index(KINDS[kind](), str(path))
    before = faiss.read_index(str(path))
    store = open_store(f"faiss:{path}")
    ids = sorted((np.arange(ROWS) * (3 if kind in OWN_IDS else 1)).tolist())
    place = {key: (ROWS - 1 - key // 3 if kind in OWN_IDS else key) for key in ids}
    rows = next(store.stream([store.vector]))
    assert rows["id"].to_pylist() == ids
    np.testing.assert_array_equal(matrix(rows["vector"]), OLD[[place[key] for key in ids]])
    assert store.distance == "l2"
    store.add_columns(ADDED)
    made = written(store, ids)
    store.write(made)
    store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle)
    after = faiss.read_index(str(path))
    assert type(after) is type(before)
    assert (after.d, after.ntotal, after.metric_type) == (SHARED, ROWS, before.metric_type)
    new = matrix(made[VECTOR.name])
    query = new[17]
    _, found = after.search(query[None], 1)
    assert found[0][0] == ids[17]
    if kind == "hnsw":
        assert after.hnsw.nb_neighbors(1) == 12
        assert (after.hnsw.efConstruction, after.hnsw.efSearch) == (33, 44)
    if kind == "ivf":
        assert (after.nlist, after.nprobe) == (4, 3)
        # The application may ask for vectors by their ids, as before.
        np.testing.assert_array_equal(after.reconstruct(ids[17]), query)
    again = matrix(open_store(f"faiss:{path}").read(ids, ["vector"])["vector"])
    np.testing.assert_array_equal(again, new)


@pytest.mark.parametrize("table", [faiss.DirectMap.Array, faiss.DirectMap.Hashtable])
def test_an_index_of_lists_gives_vectors_by_their_places_as_before(path, table):
    made = faiss.index_factory(DIM, "IVF4,Flat", faiss.METRIC_L2)
    made.train(OLD)
    # A hash table that is there before FAISS enters all under wrong places.
    made.set_direct_map_type(table)
    made.add(OLD)
    faiss.write_index(made, str(path))
    store = open_store(f"faiss:{path}")
    np.testing.assert_array_equal(matrix(next(store.stream(["vector"]))["vector"]), OLD)
    store.add_columns(ADDED)
    rows = written(store, list(range(ROWS)))
    store.write(rows)
    store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle)
    after = faiss.read_index(str(path))
    assert after.direct_map.type == table
    new = [after.reconstruct(place) for place in range(ROWS)]
    np.testing.assert_array_equal(new, matrix(rows[VECTOR.name]))


@pytest.mark.parametrize("kind", ["SQ8", "PQ3x4np", "IVF4,PQ3x4np", "IVF4,SQ8", "HNSW8,SQ8"])
def test_kinds_that_keep_codes_are_refused(path, kind):
    made = faiss.index_factory(DIM, kind)
    made.train(OLD)
    made.add(OLD)
    faiss.write_index(made, str(path))
    with pytest.raises(BadInput, match=r"keeps codes|does not give its vectors back"):
        open_store(f"faiss:{path}")


def test_how_it_compares_is_told_by_the_metric_and_the_lengths(path):
    for vectors, metric, distance in (
        (OLD, faiss.METRIC_INNER_PRODUCT, "dot"),
        (unit(OLD), faiss.METRIC_INNER_PRODUCT, "cosine"),
        (OLD, faiss.METRIC_L2, "l2"),
    ):
        made = faiss.IndexFlat(DIM, metric)
        made.add(vectors)
        faiss.write_index(made, str(path))
        store = open_store(f"faiss:{path}")
        assert store.distance == distance
        query = np.random.default_rng(1).normal(size=DIM).astype(np.float32)
        scores = similarities(distance, vectors, query)
        hits = store.search(query, column="vector", k=5)
        assert [hit.id for hit in hits] == np.argsort(-scores)[:5].tolist()
        np.testing.assert_allclose(
            [hit.score for hit in hits], np.sort(scores)[::-1][:5], rtol=1e-5
        )


@pytest.mark.parametrize("kind", ["ids.npy", "ids.txt"])
def test_ids_lie_beside_an_index_that_has_none(path, kind):
    faiss.write_index(flat(), str(path))
    ids = [f"it's {i:03}" for i in range(ROWS)]
    if kind == "ids.npy":
        np.save(path.with_name("items.ids.npy"), np.array(ids))
    else:
        path.with_name("items.ids.txt").write_text("\n".join(ids) + "\n")
    store = open_store(f"faiss:{path}")
    assert store.describe().id_type == "text"
    np.testing.assert_array_equal(matrix(store.read([ids[7]], ["vector"])["vector"]), OLD[7:8])


def test_ids_that_do_not_fit_are_named(path):
    faiss.write_index(flat(), str(path))
    np.save(path.with_name("items.ids.npy"), np.arange(7))
    with pytest.raises(BadInput, match=r"has 7 ids, and items\.index 160 rows"):
        open_store(f"faiss:{path}")
    np.save(path.with_name("items.ids.npy"), np.arange(ROWS) // 2)
    with pytest.raises(BadInput, match="has the id 0 twice"):
        open_store(f"faiss:{path}")
    faiss.write_index(mapped(), str(path))
    with pytest.raises(BadInput, match="ids of its own, and others beside it"):
        open_store(f"faiss:{path}")


def test_columns_beside_it_may_be_json_lines_in_any_order(path):
    faiss.write_index(flat(), str(path))
    lines = [json.dumps({"key": i, "body": f"text {i}"}) for i in range(100)][::-1]
    path.with_name("items.jsonl").write_text("\n".join(lines))
    with pytest.raises(BadInput, match=r"has no column 'id'.*it has key, body"):
        open_store(f"faiss:{path}")
    store = open_store(f"faiss:{path}", id="key")
    assert store.describe().columns == ("key", "vector", "body")
    rows = store.read([3, 110], ["body"])
    assert rows["body"].to_pylist() == ["text 3", None]
    hits = store.search(OLD[3], column="vector", k=2, where={"body": ["text 3", "text 9"]})
    assert [hit.id for hit in hits] == [3, 9]


def test_an_index_without_columns_is_a_store_too(path):
    faiss.write_index(mapped(), str(path))
    store = open_store(f"faiss:{path}")
    assert store.describe().columns == ("id", "vector")
    with pytest.raises(BadInput, match="has no column 'body'"):
        store.read([3], ["body"])


@pytest.mark.parametrize("at", ["nothing.index", "text.index", "folder.index"])
def test_what_is_no_index_is_refused(tmp_path, at):
    (tmp_path / "text.index").write_text("no index, " * 50)
    (tmp_path / "folder.index").mkdir()
    with pytest.raises(BadInput):
        open_store(f"faiss:{tmp_path / at}")


def test_a_change_of_the_payload_is_a_change_of_the_row(tmp_path):
    app = FaissApp(tmp_path)
    app.create([0, 1, 2], list("abc"), [0, 0, 0], OLD[:3])
    store = open_store(app.address)
    store.add_columns(ADDED)
    batch = store.read([0, 1, 2], ["vector"])
    table = pq.read_table(tmp_path / "items.parquet").to_pylist()
    table[1]["kind"] = 9
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "items.parquet")
    assert store.write(written(store, [0, 1, 2], token=batch[TOKEN])) == 2
    assert store.read([0, 1], [STATE.name])[STATE.name].to_pylist() == ["lifted", None]


def test_rows_without_a_shared_vector_are_zeros(path):
    faiss.write_index(mapped(), str(path))
    store = open_store(f"faiss:{path}")
    store.add_columns(ADDED)
    store.write(written(store, [3, 6]))
    store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle)
    vectors = matrix(open_store(f"faiss:{path}").read([0, 3], ["vector"])["vector"])
    assert not vectors[0].any()
    assert vectors[1].any()


def test_a_missing_library_names_the_line_to_install_it(path, monkeypatch):
    faiss.write_index(flat(), str(path))
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pip install 'crossfade\[faiss\]'"):
        open_store(f"faiss:{path}")


def test_an_index_is_a_file_of_new_vectors(path):
    faiss.write_index(mapped(), str(path))
    embedder = open_embedder(str(path))
    assert embedder.prepared
    np.testing.assert_array_equal(embedder.embed([0, 9], None), OLD[[ROWS - 1, ROWS - 4]])
    assert embedder.has([3, 4]).tolist() == [True, False]


def cut_short(app, monkeypatch, owner, name):
    """A `promote` that ends where this would be called."""
    app.create([0, 1, 2], list("abc"), [0, 0, 0], OLD[:3])
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.write(written(store, [0, 1, 2]))

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle)
    return store


def test_what_is_switched_can_be_withdrawn_until_the_old_index_goes(tmp_path, monkeypatch):
    app = FaissApp(tmp_path)
    store = cut_short(app, monkeypatch, Switch, "drop")
    assert store.describe().dim == SHARED
    store.withdraw(VECTOR.name)
    assert store.describe().dim == DIM
    np.testing.assert_array_equal(np.array(list(app.old().values())), unit(OLD[:3]))


def test_new_vectors_that_came_since_the_switch_are_not_rolled_back(tmp_path, monkeypatch):
    app = FaissApp(tmp_path)
    store = cut_short(app, monkeypatch, Switch, "drop")
    app.insert([7], ["new"], [0], np.ones((1, SHARED)))
    with pytest.raises(StoreError, match="holds new vectors, and was written since the switch"):
        store.withdraw(VECTOR.name)
    assert store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle) == "vector"
    np.testing.assert_array_equal(app.old()[7], unit(np.ones(SHARED)))


def test_once_the_old_index_may_go_there_is_no_way_back(tmp_path, monkeypatch):
    store = cut_short(FaissApp(tmp_path), monkeypatch, Sidecar, "drop")
    with pytest.raises(StoreError, match="the old vectors are gone"):
        store.withdraw(VECTOR.name)
    assert store.promote(VECTOR.name, NAMES, columns=["vector"], work=idle) == "vector"
    assert (store.describe().dim, store.describe().added) == (SHARED, ())
