"""An address that names a folder or a database of tables is answered with the tables there are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stores.apps import LanceApp, PostgresApp, QdrantApp
from tests.stores.faiss.app import FaissApp

from crossfade.errors import BadInput
from crossfade.stores import open_store
from crossfade.stores.registry import address_of, is_store, kept_value
from crossfade.testing.store_contract import ADDED, DIM, ROWS, kinds

OLD = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def fill(app):
    """Its rows, and what a migration adds beside them."""
    app.create(list(range(ROWS)), [f"text {i}" for i in range(ROWS)], kinds(ROWS), OLD)
    store = open_store(app.address)
    store.add_columns(ADDED)
    store.put("stage", "started")
    store.close()


def rows(address) -> int:
    with closing(open_store(address)) as store:
        return store.describe().rows


def told(address) -> str:
    """What is said of it, whether it is opened or asked for its journal."""
    with pytest.raises(BadInput) as opened:
        open_store(address)
    with pytest.raises(BadInput) as asked:
        kept_value(address, "stage")
    assert str(opened.value) == str(asked.value)
    return str(opened.value)


@pytest.fixture
def shop(tmp_path):
    """A folder of two LanceDB tables, in each of which a migration is under way."""
    app = LanceApp(tmp_path)
    fill(app)
    folder = Path(app.address).parent
    (folder / "items.lance").rename(folder / "shop.v1.lance")
    fill(app)
    return folder


def test_a_folder_of_lance_tables_names_them(shop):
    said = "names no table → add #TABLE to the address: there are items, shop.v1"
    assert told(shop) == f"{shop}: {said}"
    # As it was typed, so that one can go on from there.
    assert told(f"{shop}/") == f"{shop}/: {said}"
    assert is_store(str(shop))
    for name in ("items", "shop.v1"):
        assert rows(f"{shop}#{name}") == ROWS


def test_a_folder_with_parquet_files_is_a_store_whatever_else_is_in_it(shop):
    vectors = pa.FixedSizeListArray.from_arrays(OLD.reshape(-1), DIM)
    pq.write_table(pa.table({"id": range(ROWS), "vector": vectors}), shop / "part.parquet")
    assert address_of(shop).kind == "parquet"
    assert rows(shop) == ROWS


def test_a_folder_with_neither_is_told_so(tmp_path):
    (tmp_path / ".items.lance").mkdir()
    assert not is_store(str(tmp_path))
    with pytest.raises(BadInput, match="holds no Parquet files"):
        open_store(tmp_path)


@pytest.fixture
def database(tmp_path):
    app = PostgresApp(tmp_path)
    yield app
    app.close()


def test_a_database_names_its_tables_with_vectors(database):
    fill(database)
    url = database.address.partition("#")[0]
    database.run("CREATE TABLE bodies (id bigint PRIMARY KEY, body text)")
    database.run("CREATE VIEW seen AS SELECT * FROM items")
    database.run("CREATE SCHEMA other")
    odd = ("other.items", '"It\'s a ""table"""', '"50%#@x"', '"v1.2"')
    for name in odd:
        database.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, vector halfvec(3))")
    shown = 'It\'s a "table", items, 50%25%23%40x, public.v1.2, other.items'
    said = told(url)
    assert "names no table → add #TABLE to the address: there are " in said
    names = said.partition("there are ")[2].split(", ")
    assert sorted(names) == sorted(shown.split(", "))
    # Those that need no schema come first, but for the one that has a dot.
    assert names[-1] == "other.items"
    for name in names:
        assert rows(f"{url}#{name}") == (ROWS if name == "items" else 0)


def test_a_role_is_told_of_what_it_may_read(database):
    fill(database)
    url = database.address.partition("#")[0]
    role = f"reader_{database.run('SELECT current_database()')[0][0]}"
    database.run(f"CREATE ROLE {role} LOGIN")
    asked = url.replace("://postgres", f"://{role}", 1)
    assert told(asked).endswith("there are none")
    database.run(f"GRANT SELECT ON items TO {role}")
    assert told(asked).endswith("there are items")


def test_of_many_tables_the_first_twenty_are_named(database):
    url = database.address.partition("#")[0]
    for n in range(20):
        database.run(f"CREATE TABLE t{n:02} (id bigint PRIMARY KEY, vector vector(3))")
    assert told(url).endswith("t18, t19")
    for n in range(20, 30):
        database.run(f"CREATE TABLE t{n:02} (id bigint PRIMARY KEY, vector vector(3))")
    assert told(url).endswith("t18, t19, …")


def test_a_qdrant_names_its_collections(tmp_path):
    app = QdrantApp(tmp_path)
    fill(app)
    place = app.address.partition("#")[0]
    assert told(place).endswith(
        "names no collection → add #COLLECTION to the address: there are items"
    )
    app.close()


@pytest.mark.parametrize("scheme", ["qdrant", "chroma+http", "milvus+http", "postgresql"])
def test_where_nobody_answers_a_table_is_asked_for_all_the_same(scheme, monkeypatch):
    monkeypatch.setattr("crossfade.stores.milvus.client._SECONDS", 0.5)
    said = told(f"{scheme}://127.0.0.1:1")
    assert "to the address" in said
    assert "there are" not in said


def test_a_folder_of_faiss_indexes_names_them(tmp_path):
    fill(FaissApp(tmp_path))
    faiss.write_index(faiss.IndexFlatL2(3), str(tmp_path / "docs.faiss"))
    said = "names no file → add /FILE to the address: there are docs.faiss, items.index"
    assert told(f"faiss:{tmp_path}") == f"faiss:{tmp_path}: {said}"
    assert rows(f"faiss:{tmp_path}/items.index") == ROWS


def test_a_folder_without_an_index_is_told_so(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        open_store(f"faiss:{tmp_path}")
