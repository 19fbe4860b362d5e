"""Pairs that cover a store: farthest first, checked by a look at every row."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lookups import models
from tests.stores.apps import ParquetApp

from crossfade import open_store, sample_pairs
from crossfade.errors import BadInput
from crossfade.lookups import covering
from crossfade.lookups.covering import covering_ids, farthest_first, pool_size


def is_farthest_first(rows: np.ndarray, chosen: list[int]) -> bool:
    """Whether each is the farthest from all before it, but for the last bits of a product."""
    for done in range(1, len(chosen)):
        nearest = (rows @ rows[chosen[:done]].T).max(axis=1)
        least = np.delete(nearest, chosen[:done]).min()
        if nearest[chosen[done]] > least + 1e-6:
            return False
    return len(set(chosen)) == len(chosen)


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 90),
    dim=st.integers(2, 9),
    block=st.integers(1, 40),
)
def test_in_blocks_each_row_is_still_the_farthest_from_all_before_it(seed, rows, dim, block):
    x = unit(np.random.default_rng(seed).normal(size=(rows, dim)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "_BLOCK", block)
        found = farthest_first(x, (rows + 1) // 2)
    assert found[0] == 0
    assert is_farthest_first(x, found.tolist())


def test_equal_rows_are_each_chosen_once():
    x = unit(np.repeat(np.eye(3), 4, axis=0))
    found = farthest_first(x, 12)
    assert sorted(found.tolist()) == list(range(12))
    # One of each before any comes twice.
    assert {row // 4 for row in found[:3].tolist()} == {0, 1, 2}


def test_the_pool_is_bounded_and_never_smaller_than_what_is_wanted():
    assert pool_size(100, 64) == 1000
    assert pool_size(5_000, 3072) * 3072 * 4 <= 256 << 20
    assert pool_size(200_000, 3072) == 200_000


@pytest.fixture
def clustered(tmp_path):
    """A store of which nine tenths are nearly one text, and one row has no vector."""
    made = ParquetApp(tmp_path)
    texts = models.texts_of(400)
    vectors = models.old(texts)
    rng = np.random.default_rng(0)
    common = vectors[0] + 0.01 * rng.normal(size=(360, vectors.shape[1])).astype(np.float32)
    vectors[:360] = common
    made.create(list(range(400)), texts, [0] * 400, vectors)
    made.empty(399)
    return made


def test_ids_are_chosen_by_what_the_store_holds(clustered):
    with closing(open_store(clustered.address)) as store:
        ids = np.random.default_rng(1).permutation(400).tolist()
        found = covering_ids(store, ids, 60)
    stored = clustered.old()
    usable = [key for key in ids if key != 399]
    rows = unit(np.stack([stored[key] for key in usable]))
    assert found[0] == usable[0]
    assert len(found) == 60
    assert is_farthest_first(rows, [usable.index(key) for key in found])


def test_pairs_cover_the_store_and_what_is_held_stays_a_random_sample(clustered, tmp_path):
    def sampled(how, name):
        options = {"rows": 60, "held": 80, "lookups": 0, "source": "body", "sampling": how}
        sample_pairs(clustered.address, tmp_path / name, embed=models.new, **options)
        with np.load(tmp_path / name) as arrays:
            return {name: arrays[name].tolist() for name in ("ids", "held_ids")}

    random, cover = sampled("random", "a.npz"), sampled("covering", "b.npz")
    assert random["held_ids"] == cover["held_ids"]
    assert not set(cover["ids"]) & set(cover["held_ids"])
    # All rows of their own that are not held are among the pairs; of random ones one in ten.
    apart = set(range(360, 399)) - set(cover["held_ids"])
    assert apart <= set(cover["ids"])
    assert len(apart & set(random["ids"])) < len(apart) / 2
    # What could have been pairs and was not is nearer to a pair than in a random sample.
    stored = clustered.old()

    def farthest(ids):
        pairs, every = (unit(np.stack([stored[k] for k in keys])) for keys in (ids, range(399)))
        return float((every @ pairs.T).max(axis=1).min())

    assert farthest(cover["ids"] + cover["held_ids"]) > farthest(random["ids"] + random["held_ids"])


def test_another_word_for_sampling_is_refused(clustered, tmp_path):
    with pytest.raises(BadInput, match="no sampling 'all'"):
        sample_pairs(clustered.address, tmp_path / "p.npz", embed=models.new, sampling="all")
