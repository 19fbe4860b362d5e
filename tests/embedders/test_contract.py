"""No vector that is wrong gets past the check, whichever embedder made it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.embedders import CallableEmbedder, embed_checked
from crossfade.errors import EmbedderError

GOOD = np.arange(1, 7, dtype=np.float32).reshape(3, 2)


def asked(answer, ids=("a", "b", "c"), sources=("x", "y", "z"), dimension=2):
    return embed_checked(CallableEmbedder(lambda _: answer, "mine"), ids, sources, dimension)


def with_row(row, vector):
    answer = GOOD.astype(np.float64)
    answer[row] = vector
    return answer


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_any_array_of_numbers_is_taken_as_float32(dtype):
    vectors = asked(np.asfortranarray(GOOD.astype(dtype)))
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert np.array_equal(vectors, GOOD)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (GOOD[:2], "mine: answered with 2 × 2 for 3 items, the first of them 'a' → it has to"),
        (GOOD[0], "answered with 2 for 3 items"),
        (GOOD[None], "answered with 1 × 3 × 2 for 3 items"),
        (7.0, "answered with a single number for 3 items"),
        (np.ones((3, 5)), "the vector of item 'a' has 5 dimensions where the upgrade's new model"),
        (with_row(1, [np.nan, 1]), "the vector of item 'b' has a NaN → look at the item's source"),
        (with_row(2, [np.inf, 1]), "the vector of item 'c' has an infinite value"),
        (with_row(2, [1e200, 1]), "the vector of item 'c' has an infinite value"),
        (with_row(0, [0, 0]), "the vector of item 'a' is all zeros"),
        (np.zeros((3, 2)), "the vector of item 'a' is all zeros, and 2 others are bad too"),
        ([[1.0, 2.0], [1.0]], "answered with something that is no array of numbers"),
        (None, "answered with"),
        ([["a", "b"]] * 3, "answered with something that is no array of numbers"),
    ],
)
def test_an_answer_that_is_wrong(answer, says):
    with pytest.raises(EmbedderError, match=says) as raised:
        asked(answer)
    assert raised.value.exit_code == 3
    assert " → " in str(raised.value)


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        (None, "needs the items' text, and none was given → name the column"),
        (("x", "y"), "was asked for 3 items with 2 texts"),
        (("x", None, "z"), "item 'b' has no text but None"),
    ],
)
def test_texts_that_are_wrong(sources, says):
    with pytest.raises(EmbedderError, match=says):
        asked(GOOD, sources=sources)


def test_no_items_are_no_work():
    def never(texts):
        raise AssertionError

    assert embed_checked(CallableEmbedder(never, "never"), [], [], 7).shape == (0, 7)


def test_a_long_id_is_shortened():
    with pytest.raises(EmbedderError) as raised:
        asked(np.zeros((1, 2)), ids=["x" * 10_000], sources=["x"])
    assert len(str(raised.value)) < 250


@given(st.integers(1, 20), st.integers(1, 5), st.data())
def test_the_first_bad_item_is_named(rows, dim, data):
    answer = np.ones((rows, dim))
    bad = data.draw(st.sets(st.integers(0, rows - 1), min_size=1))
    for row in bad:
        answer[row] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
    with pytest.raises(EmbedderError, match=rf"the vector of item {min(bad)} "):
        asked(answer, ids=range(rows), sources=["x"] * rows, dimension=dim)
