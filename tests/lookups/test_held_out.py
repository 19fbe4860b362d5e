"""Held-out rows come from one file or from several, and are the same either way."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import BadInput, read_held


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    made = {
        "old": rng.normal(size=(20, 3)).astype("f4"),
        "new": rng.normal(size=(20, 4)).astype("f4"),
        "labels": np.arange(20) % 4,
    }
    np.savez(tmp_path / "pairs.npz", **made)
    for name, values in made.items():
        np.save(tmp_path / f"{name}.npy", values)
    return made


def test_several_files_are_read_as_one(rows, tmp_path):
    one = read_held(tmp_path / "pairs.npz")
    several = read_held(**{name: str(tmp_path / f"{name}.npy") for name in rows})
    assert np.array_equal(one.gallery_old, several.gallery_old)
    assert np.array_equal(one.gallery_new, several.gallery_new)
    assert one.source == several.source == "labels"
    assert one.query_classes.tolist() == several.query_classes.tolist() == rows["labels"].tolist()


def test_labels_can_be_left_unread(rows, tmp_path):
    held = read_held(tmp_path / "pairs.npz", use_labels=False)
    assert (held.source, held.relevance) == ("neighbours", None)


def test_queries_of_their_own_are_not_in_the_gallery(rows, tmp_path):
    np.savez(tmp_path / "asked.npz", **{name: values[:5] for name, values in rows.items()})
    held = read_held(tmp_path / "pairs.npz", queries=tmp_path / "asked.npz")
    assert (held.queries, held.gallery, held.own) == (5, 20, None)


def test_bad_rows_that_are_left_out_are_noted(rows, tmp_path):
    rows["old"][7] = np.nan
    np.savez(tmp_path / "bad.npz", **rows)
    held = read_held(tmp_path / "bad.npz", drop_bad_rows=True)
    assert held.gallery == 19
    assert held.notes == (f"{tmp_path / 'bad.npz'}: 1 bad rows left out",)


def test_rows_named_by_number_are_not_dropped(rows, tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(20))
    with pytest.raises(BadInput, match="name rows by number"):
        read_held(tmp_path / "pairs.npz", ids=str(tmp_path / "ids.npy"), drop_bad_rows=True)
