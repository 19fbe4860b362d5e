"""The switch: what comes along, who may write meanwhile, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.chroma.app import folder_app
from tests.stores.chroma.world import (
    ADDED,
    MAP,
    NAMES,
    ROWS,
    VECTOR,
    D,
    N,
    fill,
    is_near,
    lift,
    old_vectors,
    promote,
    told,
    work,
)

from crossfade.errors import StoreError
from crossfade.stores import open_store
from crossfade.stores.chroma.promote import DROPPING, RETURNING, Exchange


@pytest.fixture
def app(tmp_path):
    """On a folder: what differs on a server is the way to it."""
    made = folder_app(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lifted(app):
    old = fill(app)
    store = open_store(app.address)
    lift(store)
    yield app, store, old
    store.close()


def ours(app) -> list[str]:
    """Collections of ours that belong to this application's."""
    names = [one.name for one in app.client.list_collections()]
    return [name for name in names if name.endswith(app.name) and name != app.name]


def test_documents_metadata_and_settings_come_along(lifted):
    app, store, old = lifted
    before, settings = told(app), app.open().configuration_json["hnsw"]
    assert promote(store) == "embedding"
    assert told(app) == before
    assert app.open().configuration_json["hnsw"] == settings
    assert app.open().metadata == {"owner": "shop"}
    found = app.old()
    assert all(is_near(found[app.key(i)], old[i] @ MAP) for i in range(ROWS))
    assert ours(app) == []
    hits = app.open().query(query_embeddings=[old[5] @ MAP], n_results=1, where={"kind": 2})
    assert hits["ids"] == [[app.key(5)]]


def test_the_application_finds_its_words_by_document_afterwards(lifted):
    app, store, _ = lifted
    promote(store)
    found = app.open().get(where_document={"$contains": "text 17"}, include=[])
    assert found["ids"] == [app.key(17)]


def test_a_row_of_zeros_stays_one_of_zeros(lifted):
    app, store, _ = lifted
    app.empty(app.key(4))
    store.erase(store.read([app.key(4)], []))
    promote(store)
    assert app.old()[app.key(4)].tolist() == [0.0] * N


def test_rows_that_came_changed_and_went_before_it_are_as_they_are_now(lifted):
    app, store, _ = lifted
    fresh = old_vectors(3, seed=5)
    app.insert(["new"], ["a new one"], [1], fresh[:1])
    app.change(app.key(2), "changed", fresh[1])
    app.delete(app.key(3))
    # Gone and come again without a document, which a row of Chroma cannot lose otherwise.
    app.delete(app.key(6))
    app.open().add(ids=[app.key(6)], embeddings=fresh[2:], metadatas=[{"kind": 9}])
    before = told(app)
    promote(store)
    assert told(app) == before
    found = app.old()
    for key, vector in (("new", fresh[0]), (app.key(2), fresh[1]), (app.key(6), fresh[2])):
        assert is_near(found[key], vector @ MAP)
    assert app.key(3) not in found


def test_what_is_written_to_the_open_collection_after_the_switch_is_brought_over(
    lifted, monkeypatch
):
    app, store, _ = lifted
    opened, fresh = app.open(), old_vectors(2, seed=6)
    swap = Exchange.swap

    def swap_then_write(self):
        swap(self)
        opened.add(ids=["late"], embeddings=fresh[:1], documents=["late"])
        opened.update(ids=[app.key(1)], embeddings=fresh[1:], metadatas=[{"kind": 7}])
        opened.delete(ids=[app.key(2)])
        # And by the new name.
        app.open().add(ids=["plain"], embeddings=[np.ones(N)], metadatas=[{"kind": 8}])
        app.open().update(ids=[app.key(8)], metadatas=[{"kind": 5}])
        app.open().delete(ids=[app.key(9)])

    monkeypatch.setattr(Exchange, "swap", swap_then_write)
    promote(store)
    found, kept = app.old(), told(app)
    assert is_near(found["late"], fresh[0] @ MAP)
    assert is_near(found[app.key(1)], fresh[1] @ MAP)
    assert (kept["late"][0], kept[app.key(1)][1]["kind"]) == ("late", 7)
    assert app.key(2) not in found
    assert app.key(9) not in found
    assert kept[app.key(8)][1]["kind"] == 5
    assert is_near(found["plain"], np.ones(N))
    assert not any(
        name.startswith("crossfade_") for _, meta in kept.values() for name in meta or {}
    )


def test_who_has_the_old_collection_open_is_refused_afterwards(lifted):
    from chromadb.errors import NotFoundError

    app, store, old = lifted
    opened = app.open()
    promote(store)
    with pytest.raises(NotFoundError):
        opened.add(ids=["lost"], embeddings=old[:1])


def test_a_collection_made_while_nobody_has_the_name_is_taken_in(lifted, monkeypatch):
    app, store, old = lifted
    bring = Exchange._bring

    def make_one_in_between(self, kept, other, aside):
        other.rename(aside)
        made = app.client.get_or_create_collection(app.name, embedding_function=None)
        made.add(ids=["between"], embeddings=old[:1], metadatas=[{"kind": 4}])
        bring(self, kept, other, aside)

    monkeypatch.setattr(Exchange, "_bring", make_one_in_between)
    promote(store)
    assert is_near(app.old()["between"], old[0] @ MAP)
    assert told(app)["between"][1] == {"kind": 4}
    assert ours(app) == []


class Stopped(Exception):
    pass


def stop_at(monkeypatch, name):
    def stop(self, *given):
        raise Stopped

    monkeypatch.setattr(Exchange, name, stop)


@pytest.mark.parametrize("at", ["dress", "swap", "catch_up", "drop"])
def test_it_can_be_withdrawn_until_the_old_collection_goes(lifted, monkeypatch, at):
    app, store, old = lifted
    before = told(app)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(patch, at)
        promote(store)
    store.close()
    again = open_store(app.address)
    again.withdraw(VECTOR.name)
    again.drop_columns(NAMES)
    found = app.old()
    assert all(is_near(found[app.key(i)], old[i]) for i in range(ROWS))
    assert told(app) == before
    assert ours(app) == []
    assert (again.describe().dim, again.describe().added) == (D, ())
    again.close()


def test_what_was_done_by_the_new_name_goes_back_with_it(lifted, monkeypatch):
    app, store, old = lifted
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(patch, "catch_up")
        promote(store)
    opened, none = app.open(), np.zeros((1, N), np.float32)
    same = opened.get(ids=[app.key(1)], include=["embeddings"])["embeddings"]
    changed = {"documents": ["another text"], "metadatas": [{"kind": 7}]}
    opened.update(ids=[app.key(1)], embeddings=same, **changed)
    opened.update(ids=[app.key(2)], embeddings=none)
    opened.update(ids=[app.key(3)], embeddings=none, metadatas=[{"kind": 8, "body": None}])
    opened.add(ids=["late"], embeddings=none, documents=["late"], metadatas=[{"kind": 9}])
    expected = told(app)
    for _ in range(2):
        # Twice, as after a kill: what the application does in between stays.
        store.withdraw(VECTOR.name)
        found = app.old()
        assert all(is_near(found[app.key(i)], old[i]) for i in range(ROWS) if i not in (2, 3))
        for key in (app.key(2), app.key(3), "late"):
            assert found[key].tolist() == [0.0] * D
        clean = {
            key: (text, {n: v for n, v in meta.items() if not n.startswith("crossfade_")})
            for key, (text, meta) in expected.items()
        }
        assert told(app) == clean
        Exchange(store._database, store._state, store._at.old, store._shared()).reach(RETURNING)
        app.open().update(ids=[app.key(1)], metadatas=[{"kind": 6}])
        app.delete("late")
        app.insert(["late"], ["again"], [1], np.zeros((1, D), np.float32))
        expected = told(app)


def test_it_cannot_be_withdrawn_once_the_old_collection_is_gone(lifted, monkeypatch):
    _, store, _ = lifted
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(patch, "strip")
        promote(store)
    with pytest.raises(StoreError, match="old vectors are gone"):
        store.withdraw(VECTOR.name)
    promote(store)
    assert store.describe().dim == N


def test_searches_go_on_through_all_of_it(lifted, monkeypatch):
    app, store, old = lifted
    other = open_store(app.address)

    def look() -> None:
        for column, query in ((VECTOR.name, old[5] @ MAP), ("embedding", old[5])):
            hits = other.search(query, column=column, k=1, where={"kind": 2}, columns=["body"])
            assert [(hit.id, hit.values["body"]) for hit in hits] == [(app.key(5), "text 5")]

    for name in ("dress", "swap", "catch_up", "drop"):
        monkeypatch.setattr(Exchange, name, looking_first(getattr(Exchange, name), look))
    promote(store)
    hits = other.search(old[5] @ MAP, column="embedding", k=1)
    assert [hit.id for hit in hits] == [app.key(5)]
    other.close()


def looking_first(plain, look):
    def looked(self, *given):
        look()
        return plain(self, *given)

    return looked


def test_rows_deleted_since_they_were_lifted_are_not_found_or_counted(lifted):
    app, store, old = lifted
    app.delete(app.key(5))
    hits = store.search(old[5] @ MAP, column=VECTOR.name, k=ROWS)
    assert app.key(5) not in [hit.id for hit in hits]
    assert len(hits) == ROWS - 1
    assert store.tally("crossfade_state") == {"lifted": ROWS - 1}


def test_a_rare_match_is_found_among_the_shared_vectors(lifted):
    app, store, old = lifted
    ids = [f"x{i:04d}" for i in range(200)]
    app.insert(ids, ["more"] * 200, [7] * 200, np.tile(old[:1], (200, 1)))
    for rows in store.stream(["embedding", *NAMES], missing="crossfade_state"):
        store.write(work(rows))
    far = -(old[0] @ MAP)
    hits = store.search(far, column=VECTOR.name, k=2, where={"kind": 7})
    assert [hit.id in ids for hit in hits] == [True, True]
    assert ADDED[0].name in store.describe().indexed


def test_what_is_written_while_a_killed_end_waits_is_brought_over(lifted, monkeypatch):
    app, store, _ = lifted
    opened, fresh = app.open(), old_vectors(1, seed=9)
    with monkeypatch.context() as patch, pytest.raises(Stopped):

        def announced(self):
            self.reach(DROPPING)
            raise Stopped

        patch.setattr(Exchange, "drop", announced)
        promote(store)
    opened.add(ids=["late"], embeddings=fresh, documents=["late"])
    opened.delete(ids=[app.key(2)])
    promote(store)
    found = app.old()
    assert is_near(found["late"], fresh[0] @ MAP)
    assert app.key(2) not in found
