"""What backfilled items store, and that turning scores down does nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.backfill import blend
from crossfade.backfill.blend import Blend, stored
from crossfade.backfill.volume import Quiet
from crossfade.errors import BadInput

rng = np.random.default_rng(0)
B, F = rng.normal(size=(2, 20, 8)).astype("f4")
UNSEEN = np.eye(8, dtype="f4")[3]
QUIET = Quiet(UNSEEN, 0.0)
unit = st.floats(0, 1, width=32)


def normalized(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_blend_is_between_and_of_unit_length():
    assert blend(B, F, 1.0) is B
    mixed = blend(B, F, 0.3)
    assert np.allclose(np.linalg.norm(mixed, axis=1), 1, atol=1e-6)
    assert np.allclose(mixed, normalized(0.3 * B + 0.7 * F), atol=1e-6)


@given(st.floats(0, 2), st.floats(0, 2), st.lists(unit, min_size=20, max_size=20))
def test_a_changes_evenly_along_the_order(first, last, shares):
    found = stored(B, F, Blend(first, last), np.array(shares))
    for row, share in enumerate(shares):
        a = first + (last - first) * share
        mixed = a * B[row].astype(float) + (1 - a) * F[row]
        length = np.linalg.norm(mixed)
        if (first, last) != (1, 1):
            assert np.allclose(found[row], mixed / length, atol=1e-4)


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.lists(unit, min_size=20, max_size=20))
def test_the_volume_scales_every_score_of_a_query_that_leaves_the_direction_alone(
    first, last, shares
):
    queries = np.delete(np.random.default_rng(1).normal(size=(6, 8)), 3, axis=1)
    queries = normalized(np.insert(queries, 3, 0.0, axis=1))
    gallery = normalized(np.where(UNSEEN, 0.0, B))
    found = stored(gallery.astype("f4"), F, Blend(1, 1, first, last), np.array(shares), QUIET)
    volumes = first + (last - first) * np.array(shares)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.allclose(queries @ found.T, volumes * (queries @ gallery.T), atol=1e-5)


def test_a_blend_has_bounds_and_a_volume_a_direction():
    with pytest.raises(BadInput, match=r"a blend of 2\.5 → use a number from 0 to 2"):
        blend(B, F, 2.5)
    with pytest.raises(BadInput, match=r"a blend of -0\.1"):
        Blend(1, -0.1)
    with pytest.raises(BadInput, match=r"a volume of 0\.0 → use a number above 0, at most 1"):
        Blend(1, 1, 0.0)
    with pytest.raises(BadInput, match="a volume below 1 needs a quiet direction"):
        stored(B, F, Blend(1, 1, 0.5))


def test_the_quiet_direction_is_the_one_fresh_queries_use_least():
    rng = np.random.default_rng(2)
    turned = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    queries = (rng.normal(size=(4000, 6)) * [3, 2, 1, 1, 1, 0.02]) @ turned
    found = Quiet.learn(queries.astype("f4"))
    assert abs(found.direction @ turned[5]) == pytest.approx(1, abs=1e-3)
    along = normalized(queries) @ found.direction
    assert found.loudness == pytest.approx(np.sqrt(np.mean(along**2)), rel=0.1)
    assert found.enough
    assert np.array_equal(Quiet.learn(queries.astype("f4")).direction, found.direction)


def test_few_queries_do_not_make_a_loud_direction_look_quiet():
    # Twelve of twenty dimensions are unused by ten queries, and used by all others.
    queries = np.random.default_rng(3).normal(size=(20, 20)).astype("f4")
    found = Quiet.learn(queries)
    assert not found.enough
    with pytest.raises(BadInput, match="at least two queries"):
        Quiet.learn(queries[:1])
