"""B in a FAISS index: new queries find what `query_for_old` of them finds in the old index."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.errors import BadInput
from crossfade.integrations.faiss import export_faiss

KINDS = ["orthogonal", "near-orthogonal", "affine"]


def fitted(made, **options):
    old, new, _ = made(rows=300)
    return Upgrade(**{"solver": "closed_form"} | options).fit(old, new), old, new


def index_of(vectors, factory="Flat", metric=faiss.METRIC_INNER_PRODUCT):
    index = faiss.index_factory(vectors.shape[1], factory, metric)
    index.train(vectors)
    index.add(vectors)
    return index


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("backward", KINDS)
@pytest.mark.parametrize("how", ["l2", "none"])
@pytest.mark.parametrize(("d", "n"), [(6, 8), (8, 6), (7, 7)])
def test_new_queries_are_ranked_as_by_brute_force(tmp_path, made, backward, how, d, n):
    old, new, _ = made(rows=300, d=d, n=n)
    upgrade = Upgrade(
        solver="closed_form",
        backward_map=backward,
        normalize_old=how,
        normalize_new=how,
        rotate_old=d > n,
    ).fit(old, new)
    gallery = unit(old)
    faiss.write_index(index_of(gallery), str(tmp_path / "old.index"))
    assert export_faiss(upgrade, tmp_path / "old.index", tmp_path / "new.index") < 1e-4
    scores, found = faiss.read_index(str(tmp_path / "new.index")).search(new[:50], 10)
    expected = upgrade.query_for_old(new[:50]) @ gallery.T
    best = -np.sort(-expected, axis=1)[:, :10]
    # By their scores: two that differ by a rounding may change places.
    assert np.allclose(np.take_along_axis(expected, found, axis=1), best, rtol=1e-5, atol=1e-5)
    assert np.allclose(scores, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factory", ["IVF4,Flat", "HNSW8,Flat", "IDMap,Flat", "OPQ3_6,Flat"])
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_any_index_is_kept_as_it_is(tmp_path, made, factory, metric):
    upgrade, old, new = fitted(made)
    index = faiss.index_factory(6, factory, metric)
    index.train(old)
    if "IDMap" in factory:
        index.add_with_ids(old, 1000 + np.arange(len(old)))
    else:
        index.add(old)
    faiss.write_index(index, str(tmp_path / "old.index"))
    before = (tmp_path / "old.index").read_bytes()
    export_faiss(upgrade, tmp_path / "old.index", tmp_path / "new.index")
    assert (tmp_path / "old.index").read_bytes() == before
    scores, found = faiss.read_index(str(tmp_path / "new.index")).search(new[:40], 5)
    expected_scores, expected = index.search(upgrade.query_for_old(new[:40]), 5)
    assert np.array_equal(found, expected)
    assert np.allclose(scores, expected_scores, rtol=1e-4)


def test_an_index_of_another_dimension_is_refused(tmp_path, made):
    upgrade, _, new = fitted(made)
    faiss.write_index(index_of(new), str(tmp_path / "old.index"))
    with pytest.raises(BadInput, match=r"vectors of 8 dimensions, and the upgrade's old .* 6"):
        export_faiss(upgrade, tmp_path / "old.index", tmp_path / "new.index")
    assert [one.name for one in tmp_path.iterdir()] == ["old.index"]


def test_what_is_no_index_is_refused(tmp_path, made):
    upgrade, *_ = fitted(made)
    (tmp_path / "old.index").write_bytes(b"IxFI and then nothing of the kind")
    for missing in ("old.index", "nothing.index"):
        with pytest.raises(BadInput, match=missing):
            export_faiss(upgrade, tmp_path / missing, tmp_path / "new.index")
    assert [one.name for one in tmp_path.iterdir()] == ["old.index"]


def test_an_existing_file_is_kept_unless_asked(tmp_path, made):
    upgrade, old, _ = fitted(made)
    faiss.write_index(index_of(old), str(tmp_path / "old.index"))
    (tmp_path / "new.index").write_text("precious")
    with pytest.raises(BadInput, match="already exists"):
        export_faiss(upgrade, tmp_path / "old.index", tmp_path / "new.index")
    assert (tmp_path / "new.index").read_text() == "precious"
    export_faiss(upgrade, tmp_path / "old.index", tmp_path / "new.index", overwrite=True)
    assert faiss.read_index(str(tmp_path / "new.index")).d == 8


def test_the_old_index_is_never_replaced(tmp_path, made):
    upgrade, old, _ = fitted(made)
    path = tmp_path / "old.index"
    faiss.write_index(index_of(old), str(path))
    before = path.read_bytes()
    with pytest.raises(BadInput, match="is the old index itself"):
        export_faiss(upgrade, path, path, overwrite=True)
    assert path.read_bytes() == before
