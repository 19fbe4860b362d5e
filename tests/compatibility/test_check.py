"""A failed verdict is an exception for whoever asks, with what to do instead."""

from __future__ import annotations

import pytest

from crossfade import Held, NotCompatible, evaluate


def test_a_required_case_that_fails_is_raised_with_its_name_and_place(scene):
    made = scene()
    found = evaluate(made.upgrade, made.held, required=["new/old"], resamples=100)
    with pytest.raises(NotCompatible, match=r"^up: new/old: below old/old with 95 % confidence →"):
        found.check("up")


def test_nothing_is_raised_where_no_case_is_required(scene):
    made = scene()
    evaluate(made.upgrade, made.held, required=[], resamples=100).check()


def test_what_could_not_be_judged_is_raised_with_the_reason(scene):
    made = scene()
    pairs = Held.of(made.pairs)
    unlabelled = type(pairs)(
        name="rows",
        gallery_old=pairs.gallery_old,
        gallery_new=pairs.gallery_new,
        query_old=pairs.query_old,
        query_new=pairs.query_new,
        own=pairs.own,
        relevance=None,
        source="neighbours",
    )
    found = evaluate(made.upgrade, unlabelled, resamples=100)
    assert found.why_unjudged
    with pytest.raises(NotCompatible, match=f"not judged: {found.why_unjudged}"):
        found.check()
