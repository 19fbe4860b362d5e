"""What a migration refuses: a second one, other vectors, another upgrade, tampered rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import texts_of

from crossfade.errors import BadInput, NotCompatible, StoreError
from crossfade.journal.columns import VECTOR
from crossfade.migration import Migration
from crossfade.stores.rows import matrix


def test_a_second_migration_at_once_is_refused(world, migration):
    migration.start(source="body", force=True)
    with migration.store.lock():
        second = Migration(world.app.address, world.folder)
        with pytest.raises(StoreError, match="another process"):
            second.forward()
        second.close()
    with pytest.raises(BadInput, match="under way"):
        migration.start(force=True)


def test_start_refuses_vectors_of_another_model(app, models, upgrade_folder):
    texts = texts_of(200)
    foreign = np.random.default_rng(5).normal(size=(200, 12)).astype(np.float32) + 3
    app.create(list(range(200)), texts, [0] * 200, foreign)
    migration = Migration(app.address, upgrade_folder)
    with pytest.raises(NotCompatible, match="do not look like vectors of coarse"):
        migration.start()
    assert migration.store.describe().added == ()
    migration.close()


def test_start_without_any_evidence_is_refused(world, migration):
    with pytest.raises(NotCompatible, match="no evaluation says that the upgrade is good enough"):
        migration.start()
    assert migration.store.describe().added == ()


def test_start_refuses_another_dimension(app, upgrade_folder):
    vectors = np.random.default_rng(5).normal(size=(50, 5)).astype(np.float32)
    app.create(list(range(50)), ["x"] * 50, [0] * 50, vectors)
    migration = Migration(app.address, upgrade_folder)
    with pytest.raises(BadInput, match=r"5 dimensions.*12"):
        migration.start(force=True)
    migration.close()


def test_verify_finds_a_vector_that_was_tampered_with(world, lifted):
    store = lifted.store
    rows = store.read([33], list(store.describe().added))
    vector = matrix(rows[VECTOR]).copy()
    vector[0, 0] += 0.25
    from crossfade.files.arrow import to_arrow

    changed = rows.set_column(rows.schema.get_field_index(VECTOR), VECTOR, to_arrow(vector))
    store.write(changed)
    found = lifted.verify()
    assert not found.passed
    assert "33" in next(c.detail for c in found.checks if c.name == "checksums")


def test_an_upgrade_that_changed_meanwhile_is_refused(world, lifted, models, tmp_path):
    from crossfade import Upgrade

    texts = texts_of(600, seed=3)
    Upgrade(solver="closed_form").fit(models.old(texts), models.new(texts)).save(tmp_path / "other")
    other = Migration(world.app.address, tmp_path / "other")
    with pytest.raises(BadInput, match="was started with"):
        other.forward()
    other.close()
