"""At every stage a column is asked with vectors that fit what it holds then."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from tests.migration.conftest import D, Function, N, texts_of, unit

from crossfade import Upgrade
from crossfade.errors import BadInput
from crossfade.journal.columns import VECTOR
from crossfade.journal.journal import need_journal
from crossfade.journal.space import SharedColumn
from crossfade.migration import Migration
from crossfade.search import QueryVectors, query_column, query_vector


@pytest.fixture
def asked(world):
    return world.models.new(texts_of(5, seed=3))


def test_the_applications_own_column_takes_old_queries_until_it_is_finished(
    world,
    migration,
    asked,
):
    vectors = QueryVectors(world.app.address, world.upgrade, refresh=0)
    expected = world.upgrade.query_for_old(asked)

    def as_old() -> bool:
        found = vectors(asked)
        return found.shape == (5, D) and np.array_equal(found, expected)

    migration.start(source="body", force=True)
    assert as_old()
    migration.forward()
    assert as_old()
    migration.backfill(Function(world.models), share=0.5)
    assert as_old()
    migration.finish(force=True)
    assert vectors.column == "vector"
    assert np.allclose(vectors(asked), unit(asked), atol=1e-6)
    # What comes out finds what the application's own client finds with plain new vectors.
    table = world.app._open()
    for got, plain in zip(vectors(asked), asked, strict=True):
        own = [row["id"] for row in table.search(got).distance_type("cosine").limit(5).to_list()]
        new = [row["id"] for row in table.search(plain).distance_type("cosine").limit(5).to_list()]
        assert own == new


def test_rolled_back_it_takes_old_queries_again(world, lifted, asked):
    lifted.rollback()
    vectors = QueryVectors(world.app.address, world.upgrade)
    assert np.array_equal(vectors(asked), world.upgrade.query_for_old(asked))


def test_the_shared_column_is_asked_once_every_row_is_lifted(world, migration, asked):
    shared = QueryVectors(world.app.address, world.upgrade, column=VECTOR, refresh=0)
    migration.start(source="body", force=True)
    assert query_column(need_journal(migration.store)) == "vector"
    with pytest.raises(BadInput, match=r"'crossfade_vector' cannot be asked .* → ask 'vector'"):
        shared(asked)
    migration.forward()
    assert query_column(need_journal(migration.store)) == VECTOR
    assert np.allclose(shared(asked), unit(asked), atol=1e-6)
    migration.finish(force=True)
    with pytest.raises(BadInput, match="in the stage 'finished'"):
        shared(asked)


def test_where_b_stretches_the_column_is_asked_with_b(models, world, tmp_path, asked):
    texts = texts_of(600, seed=99)
    upgrade = Upgrade(solver="closed_form", backward_map="affine")
    upgrade.fit(models.old(texts), models.new(texts)).save(tmp_path / "affine")
    with closing(Migration(world.app.address, tmp_path / "affine")) as migration:
        migration.start(source="body", force=True)
        migration.forward()
        shared = QueryVectors(migration.store, upgrade, column=VECTOR)
        assert np.array_equal(shared(asked), upgrade.backward(asked))
        migration.finish(force=True)
        own = QueryVectors(migration.store, upgrade)
        assert np.array_equal(own(asked), upgrade.backward(asked))


def test_one_vector_is_a_row_of_many(world, lifted, asked):
    journal = need_journal(lifted.store)
    for column in ("vector", VECTOR):
        many = query_vector(journal, world.upgrade, asked, column=column)
        one = query_vector(journal, world.upgrade, asked[2], column=column)
        assert one.shape == many.shape[1:]
        assert np.allclose(one, many[2], atol=1e-6)


def test_it_is_what_a_searcher_asks_with(world, lifted, asked):
    journal = need_journal(lifted.store)
    column = SharedColumn.of(world.upgrade, journal.space)
    got = query_vector(journal, world.upgrade, asked, column=VECTOR)
    assert np.array_equal(got, column.ask(asked))
    searcher = lifted.searcher(refresh=0)
    for new, shared in zip(asked, got, strict=True):
        hits = lifted.store.search(shared, column=VECTOR, k=7)
        assert [hit.id for hit in searcher.search(new, k=7)] == [hit.id for hit in hits]


@pytest.mark.parametrize("column", [None, VECTOR])
def test_vectors_of_the_other_model_are_refused(world, lifted, column):
    vectors = QueryVectors(lifted.store, world.upgrade, column=column)
    with pytest.raises(BadInput, match=f"dimension {D}, but backward reads new .* {N}"):
        vectors(world.models.old(texts_of(3)))
    with pytest.raises(BadInput, match="row 1 of 'new' has a NaN"):
        vectors(np.array([[1.0] * N, [np.nan] * N], np.float32))


def test_another_upgrade_is_refused(world, lifted, models):
    texts = texts_of(300, seed=5)
    other = Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts))
    with pytest.raises(BadInput, match="is migrated with upgrade"):
        QueryVectors(lifted.store, other)(models.new(texts[:1]))


def test_a_store_that_was_never_migrated_says_so(world):
    with pytest.raises(BadInput, match="no migration was started"):
        QueryVectors(world.app.address, world.upgrade)(np.ones(N, np.float32))
